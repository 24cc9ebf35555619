//! The attributes `#[idempotent]` and `#[external]`, and `#[derive(KeyPart)]`. Users import them from the facade `idem-rs`, as
//! `idem::idempotent`, `idem::external::external` and `idem::KeyPart`; the first two are in its prelude.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod args;
mod duration;
mod expand;
mod external;
mod external_args;
mod header;
mod key;
mod key_part;
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

#[doc = include_str!("../docs/external.md")]
#[proc_macro_attribute]
pub fn external(arguments: TokenStream, item: TokenStream) -> TokenStream {
    external::external(arguments.into(), item.into()).into()
}

#[doc = include_str!("../docs/key_part.md")]
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn key_part(item: TokenStream) -> TokenStream {
    key_part::key_part(item.into()).into()
}
