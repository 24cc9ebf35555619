//! The kinds of keys, and how each is written.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream, Result};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Ident, Index, LitStr, Member, Token, parenthesized, token};

use crate::args::text;

const KEYS: &str = "a field (`\"event_id\"`, `\"order.id\"`), `header(\"..\")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these";

/// The bare words that are facts of the delivery and no fields.
const FACTS: [&str; 4] = ["message_id", "position", "partition_key", "cloud_event_id"];

/// A key, or a part of a composite one.
pub(crate) enum Part {
    /// The members from the message down to the field, and where they are written.
    Field(Vec<Member>, Span),
    /// `header` with its name, or one of [`FACTS`].
    Fact(Ident, Option<LitStr>),
}

/// Reads a key: one part, or a tuple of at least two.
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
    /// Where it is written.
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

/// The members of a path that is written as a string. To a span of the user's rustc suggests a field of a similar name
/// in place of the literal, which is right for a path of one field only.
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
            _ => format!("no field is called `{value}`; for a header write `header(\"{value}\")`"),
        };
        Error::new(path.span(), text)
    })
}

/// An identifier, raw where it is a keyword. Only what can be one is given to the lexer of rustc, which reports the
/// rest to the user on its own.
fn word(text: &str, span: Span) -> Option<Ident> {
    let is_word = text.chars().all(|c| c == '_' || c.is_alphanumeric());
    match text {
        "_" | "self" | "Self" | "super" | "crate" => None,
        _ if !is_word => None,
        _ if syn::parse_str::<Ident>(text).is_ok() => Some(Ident::new(text, span)),
        _ => Some(Ident::new_raw(text, span)),
    }
}
