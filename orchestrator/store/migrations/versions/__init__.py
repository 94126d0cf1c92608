"""One file a revision, in order; a revision that was released is never edited."""
