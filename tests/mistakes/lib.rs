//! Tests of the compile errors for user mistakes: `tests/ui`.
