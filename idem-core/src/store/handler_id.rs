//! The id of a handler in the database.

/// (consumer, handler), interned as a small integer in the table `handlers`.
// Exhaustive: it is the column's number, and stores wrap and unwrap it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandlerId(pub i32);
