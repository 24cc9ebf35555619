//! The trace of a trial: what its workers did, step by step, as `tests/model` of the repository checks it against the
//! model of the protocol. Not part of the public API.
//!
//! | module | contents |
//! |---|---|
//! | `book` | the text, and the time |
//! | `subject` | the key and the message of a step |
//! | `process` | the steps of one process |
//! | `request`, `call` | a request to another system; the steps of an external call |
//! | `killed` | the ends of processes that could not write them |
//! | `operator` | the steps of an operator, and what is left at the end |
//!
//! `Trial` writes one, and so does a worker over a [`TracedProcess`](crate::harness::TracedProcess).

mod book;
mod call;
mod killed;
mod operator;
mod process;
mod request;
mod subject;

pub use book::Trace;
pub use call::CallOf;
pub use process::ProcessTrace;
pub(crate) use process::Step;
pub(crate) use request::Request;
pub(crate) use subject::Subject;
