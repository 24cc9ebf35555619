//! The test kit of idem.
