//! Strings among the arguments.

use syn::parse::{ParseStream, Result};
use syn::{Error, LitStr};

/// Parses a string that is not empty.
pub(crate) fn text(input: ParseStream<'_>, what: &str) -> Result<LitStr> {
    if !input.peek(LitStr) {
        return Err(input.error(format!("expected {what}")));
    }
    let text = input.parse::<LitStr>()?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), format!("this is empty; expected {what}")));
    }
    Ok(text)
}
