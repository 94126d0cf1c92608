"""0019: views of pages under a name; on PostgreSQL the functions by which the table of all runs reads documents."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

# PostgreSQL before 16 can neither ask whether a text is JSON nor whether it is a number that it can hold; a cast of one
# that is not fails the whole query. It has no text with a NUL either.
FUNCTION = r"""
CREATE FUNCTION {name}(document text, path text[]) RETURNS {kind} LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE found json;
BEGIN
    found := replace(document, '\u0000', '\ufffd')::json #> path;
    RETURN CASE WHEN json_typeof(found) IN ({types}) THEN {value} END;
EXCEPTION WHEN data_exception OR statement_too_complex THEN
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    """Make the table, and on PostgreSQL the functions; nothing that was there is touched."""
    op.create_table(
        "saved_views",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_saved_views"),
        sa.UniqueConstraint("name", name="uq_saved_views_name"),
    )
    if op.get_bind().dialect.name == "postgresql":
        text = {"kind": "text", "types": "'string', 'boolean'", "value": "found #>> '{}'"}
        number = {"kind": "double precision", "types": "'number'", "value": "found::text::double precision"}
        op.execute(sa.text(FUNCTION.format(name="json_text_at", **text).replace(":", r"\:")))
        op.execute(sa.text(FUNCTION.format(name="json_number_at", **number).replace(":", r"\:")))
