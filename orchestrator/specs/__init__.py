"""Specifications as people write them: text, positions, faults, schemas, previews. What they mean is in
`orchestrator/kinds`."""
