//! The tables that were found to be usable, of those that only some workers use.

use tokio::sync::OnceCell;

/// Which of these tables were found to be usable.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) outbox: OnceCell<()>,
    pub(super) call_namespaces: OnceCell<()>,
}
