//! The names in a trace, by number.

/// The number of a name, which is added if it is new.
pub(crate) fn number<T: Clone + PartialEq>(names: &mut Vec<T>, name: &T) -> usize {
    names.iter().position(|of| of == name).unwrap_or_else(|| {
        names.push(name.clone());
        names.len() - 1
    })
}
