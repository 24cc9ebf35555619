//! The `#[idempotent]` attribute.

mod args;
mod expand;
mod header;

mod types;

#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// TODO docs
#[proc_macro_attribute]
pub fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::idempotent(arguments.into(), item.into()).into()
}
