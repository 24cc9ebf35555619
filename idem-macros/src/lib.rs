//! The `#[idempotent]` attribute. Users import it from the facade `idem-rs` as `idem::idempotent`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod args;
mod expand;
mod header;
mod key;
mod text;
mod types;

#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

#[doc = include_str!("../docs/idempotent.md")]
#[proc_macro_attribute]
pub fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::idempotent(arguments.into(), item.into()).into()
}
