//! What another system knows of a call.

/// What another system knows of the calls under a key.
///
/// ```
/// # use idem_core::Found;
/// /// A provider that lists its charges.
/// fn found(charges: &[&str]) -> Found<String> {
///     match charges {
///         [] => Found::NotThere,
///         [one] => Found::There((*one).to_owned()),
///         // Somebody has to look.
///         _ => Found::Unknown,
///     }
/// }
/// assert_eq!(found(&[]), Found::NotThere);
/// ```
// Exhaustive: the function that returns it decides between these, and nothing else follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    /// A call had an effect, and this is its answer. The handler completes with it.
    There(T),
    /// No call had an effect, and none that was sent can still have one: the call is made again, under the same key.
    NotThere,
    /// It cannot be known. The message is a dead letter, `unresolved`.
    Unknown,
}
