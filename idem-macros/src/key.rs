//! The kinds of keys and their syntax.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream, Result};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Ident, Index, LitStr, Member, Token, parenthesized, token};

use crate::text::text;

const KEYS: &str = "a field (`\"event_id\"`, `\"order.id\"`), `header(\"..\")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these";

/// The bare words that name a property of the delivery instead of a field.
const FACTS: [&str; 4] = ["message_id", "position", "partition_key", "cloud_event_id"];

/// A key, or one part of a composite key.
pub(crate) enum Part {
    /// The members from the message down to the field, and their span.
    Field(Vec<Member>, Span),
    /// `header` with its name, or one of [`FACTS`].
    Fact(Ident, Option<LitStr>),
}

/// Parses a key: one part, or a tuple of at least two.
pub(crate) fn key(input: ParseStream<'_>) -> Result<Vec<Part>> {
    if !input.peek(token::Paren) {
        return Ok(vec![input.parse()?]);
    }
    let inner;
    let parens = parenthesized!(inner in input);
    let parts = Punctuated::<Part, Token![,]>::parse_terminated(&inner)?;
    if parts.len() < 2 {
        let text = "a composite key has at least two parts: `key = (order_id, version)`; one part needs no parentheses";
        return Err(Error::new(parens.span.join(), text));
    }
    Ok(parts.into_iter().collect())
}

impl Part {
    /// Returns the span of this part.
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Field(_, span) => *span,
            Self::Fact(word, _) => word.span(),
        }
    }
}

impl Parse for Part {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(LitStr) {
            let path = input.parse::<LitStr>()?;
            return Ok(Self::Field(members(&path)?, path.span()));
        }
        if input.peek(Ident) && input.peek2(token::Paren) {
            let word = input.parse::<Ident>()?;
            let inner;
            parenthesized!(inner in input);
            if word != "header" {
                return Err(Error::new(word.span(), format!("`{word}(..)` is no key; expected {KEYS}")));
            }
            let name = text(&inner, "the name of the header as a string: `header(\"ce-id\")`")?;
            return if inner.is_empty() { Ok(Self::Fact(word, Some(name))) } else { Err(inner.error("expected `)`")) };
        }
        if !input.peek(Ident) {
            return Err(input.error(format!("expected {KEYS}")));
        }
        let path = Punctuated::<Member, Token![.]>::parse_separated_nonempty(input)?;
        Ok(match path.first() {
            Some(Member::Named(word)) if path.len() == 1 && FACTS.iter().any(|fact| word == fact) => {
                Self::Fact(word.clone(), None)
            }
            first => {
                let span = first.span();
                Self::Field(path.into_iter().collect(), span)
            }
        })
    }
}

/// Returns the members of a path that is written as a string. With a span of user code, rustc suggests a field of a
/// similar name as a replacement for the literal; this is correct only for a path of one field.
fn members(path: &LitStr) -> Result<Vec<Member>> {
    let value = path.value();
    let span = if value.contains('.') { Span::call_site().located_at(path.span()) } else { path.span() };
    let member = |part: &str| match part.chars().next()? {
        '0'..='9' => Some(Member::Unnamed(Index { index: part.parse().ok()?, span })),
        first if first == '_' || first.is_alphabetic() => word(part, span).map(Member::Named),
        _ => None,
    };
    value.split('.').map(member).collect::<Option<_>>().ok_or_else(|| {
        let text = match value.as_str() {
            "" => format!("this is empty; expected {KEYS}"),
            _ => {
                let name = value.trim_start_matches("header(").trim_end_matches(')').trim_matches('"');
                format!("no field is called `{value}`; for a header write `header(\"{name}\")`")
            }
        };
        Error::new(path.span(), text)
    })
}

/// Returns an identifier, raw if it is a keyword. Only a possible identifier is passed to rustc's lexer, which reports
/// anything else to the user by itself.
fn word(text: &str, span: Span) -> Option<Ident> {
    let is_word = text.chars().all(|c| c == '_' || c.is_alphanumeric());
    match text {
        "_" | "self" | "Self" | "super" | "crate" => None,
        _ if !is_word => None,
        _ if syn::parse_str::<Ident>(text).is_ok() => Some(Ident::new(text, span)),
        _ => Some(Ident::new_raw(text, span)),
    }
}
