//! The grammar of what stands in `#[idempotent(...)]`.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser, Result};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Ident, Index, LitStr, Member, Path, Token, parenthesized, token};

const ARGUMENTS: &str = "`key = ..`, `name = \"..\"`, `event = \"..\"`, `fingerprint = ..` or `crate = ..`";
const KEYS: &str =
    "a field (`\"event_id\"`, `\"order.id\"`), `header(\"..\")`, `message_id`, `position`, or a tuple of these";

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 200;

/// The arguments that could be read.
#[derive(Default)]
pub(crate) struct Args {
    /// One part, or more than one for a composite key.
    pub(crate) key: Option<Vec<Part>>,
    pub(crate) name: Option<LitStr>,
    pub(crate) event: Option<LitStr>,
    pub(crate) fingerprint: Option<Path>,
    pub(crate) krate: Option<Path>,
    /// Whether a key is given, rightly or wrongly, or may have been meant: two errors about it are one too many.
    keyed: bool,
}

/// A key, or a part of a composite one.
pub(crate) enum Part {
    /// The members from the message down to the field, and where they are written.
    Field(Vec<Member>, Span),
    /// `header` with its name, `message_id` or `position`.
    Fact(Ident, Option<LitStr>),
}

impl Args {
    /// Reads all arguments. What is wrong is left out, and its error is added to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Vec<Error>) -> Self {
        let mut args = Self::default();
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.argument(input) {
                    errors.push(error);
                    while !input.is_empty() && !input.peek(Token![,]) {
                        input.parse::<TokenTree>()?;
                    }
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        // What an argument with a mistake has left unread in its parentheses is no second mistake.
        let unread = parser.parse2(tokens).err().filter(|_| errors.is_empty());
        errors.extend(unread);
        if !args.keyed {
            let text = "a handler needs the key of its messages: `#[idempotent(key = \"event_id\")]`";
            errors.push(Error::new(Span::call_site(), text));
        }
        args
    }

    fn argument(&mut self, input: ParseStream<'_>) -> Result<()> {
        if !input.peek(Ident::peek_any) {
            self.keyed = true;
            return Err(input.error(format!("expected {ARGUMENTS}")));
        }
        let word = input.call(Ident::parse_any)?;
        match word.to_string().as_str() {
            "key" => {
                self.keyed = true;
                set(&mut self.key, &word, input, key)
            }
            "name" => set(&mut self.name, &word, input, name),
            "event" => set(&mut self.event, &word, input, event),
            "fingerprint" => set(&mut self.fingerprint, &word, input, Path::parse),
            "crate" => set(&mut self.krate, &word, input, Path::parse_mod_style),
            other => {
                self.keyed = true;
                Err(Error::new(word.span(), format!("unknown argument `{other}`; expected {ARGUMENTS}")))
            }
        }
    }
}

/// Reads `= value`, which must be the whole argument, and given once.
fn set<T>(
    slot: &mut Option<T>,
    word: &Ident,
    input: ParseStream<'_>,
    value: fn(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if !input.peek(Token![=]) {
        return Err(Error::new(word.span(), format!("expected `{word} = ..`")));
    }
    input.parse::<Token![=]>()?;
    let value = value(input)?;
    if !input.is_empty() && !input.peek(Token![,]) {
        return Err(input.error("expected `,`"));
    }
    if slot.replace(value).is_some() {
        return Err(Error::new(word.span(), format!("`{word}` is given twice; keep one")));
    }
    Ok(())
}

fn name(input: ParseStream<'_>) -> Result<LitStr> {
    let name = text(input, "the stored name of the handler as a string: `name = \"order_paid\"`")?;
    match name.value() {
        value if value.len() > MAX_NAME => {
            let text = format!("the name has {} bytes; at most {MAX_NAME} are possible", value.len());
            Err(Error::new(name.span(), text))
        }
        value if value.chars().any(char::is_control) => {
            Err(Error::new(name.span(), "a name has no control characters: it is stored as text, and shown"))
        }
        _ => Ok(name),
    }
}

fn event(input: ParseStream<'_>) -> Result<LitStr> {
    text(input, "the type of event as a string: `event = \"order.paid\"`")
}

/// A string that is not empty.
fn text(input: ParseStream<'_>, what: &str) -> Result<LitStr> {
    if !input.peek(LitStr) {
        return Err(input.error(format!("expected {what}")));
    }
    let text = input.parse::<LitStr>()?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), format!("this is empty; expected {what}")));
    }
    Ok(text)
}

fn key(input: ParseStream<'_>) -> Result<Vec<Part>> {
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
            Some(Member::Named(word)) if path.len() == 1 && (word == "message_id" || word == "position") => {
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
