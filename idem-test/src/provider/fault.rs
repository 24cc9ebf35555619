//! How a request can fail.

/// How a request can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is answered with 429, and has no effect.
    Busy,
    /// It is answered with 500, which is stored for its key, and has no effect.
    Error,
    /// It never arrives.
    LoseRequest,
    /// It charges, and its answer never arrives.
    LoseAnswer,
    /// It charges, and is never answered.
    Hang,
    /// It waits until the test releases it, and then charges. If its caller gives up, it has no effect.
    Wait,
    /// The client panics, and nothing arrives.
    Panic,
}
