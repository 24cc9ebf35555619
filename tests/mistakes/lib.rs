//! Tests of the errors that a mistake is answered with: `tests/ui`.
