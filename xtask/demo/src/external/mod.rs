//! Orders that are paid for at a provider while workers are killed: `cargo xtask demo external`.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | which requests fail, and which rows are held beyond the life of their key |
//! | `provider` | the provider as a server, and its client |
//! | `payer` | the process that is killed |
//! | `rows` | the messages, and what became of them |
//! | `judge` | the verdict on both runs |
//! | `run` | a run with external calls, and one with a naive handler |

mod judge;
mod payer;
mod plan;
mod provider;
mod rows;
mod run;

pub(crate) use payer::{How, pay};
pub(crate) use run::{Settings, run};
