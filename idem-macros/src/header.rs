//! The header of the function and the requirements on a handler's header. The body is passed on without being parsed.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Result};
use syn::{Attribute, Error, FnArg, GenericParam, ReturnType, Signature, Type, Visibility};

use crate::types::{batched, exclusive, is_of_one, made_static, owned};

const USAGE: &str = "`async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`";
const NO_CONNECTION: &str = "a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or \
                             `tx: &mut SqliteConnection` (written out, without an alias for the reference)";
const TWO_CONNECTIONS: &str = "a handler has one `&mut`, the connection; take other things by value, as `State<T>`";
const BEST_EFFORT: &str = "a handler with `best_effort` takes no connection: its effect is in another system, and may be repeated after a \
                           crash or a failed attempt. Remove the parameter, or remove `best_effort`, and the writes are applied once";
const METHOD: &str = "a handler is a free function: move it out of the `impl` block, and take `State<T>` for `self`";
const UNSAFE: &str = "a handler must not be `unsafe`: the worker calls it, and cannot ensure what an `unsafe` function \
                      requires of its caller. Remove `unsafe`";
const GENERIC: &str = "a handler has no type parameters: name the types";

const OF_ONE: &str =
    "a batch has many deliveries: take what you need of each into its message, and `State<T>` beside it";

/// The length of the longest tuple that implements `Param`.
pub(crate) const MAX_PARAMS: usize = 6;

/// Everything before the body.
pub(crate) struct Header {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
}

/// The types of a handler.
pub(crate) struct Shape {
    pub(crate) message: Type,
    /// The message, or the batch of messages, as the function takes it.
    pub(crate) input: Type,
    /// The extractors, in order.
    pub(crate) params: Vec<Type>,
    /// The connection type without its `&mut`, with `'static` for each lifetime; `None` with `best_effort`.
    pub(crate) connection: Option<Type>,
    /// Whether the function takes a batch.
    pub(crate) is_batch: bool,
    /// The index of the connection among all parameters; the message is at 0.
    pub(crate) connection_at: Option<usize>,
    pub(crate) output: Type,
}

impl Parse for Header {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        input.parse::<TokenStream>()?;
        Ok(Self { attrs, vis, sig })
    }
}

impl Header {
    /// Returns whether the function is a method. Nothing can then be added next to it: an `impl` block cannot contain
    /// types.
    pub(crate) fn is_method(&self) -> bool {
        self.sig.receiver().is_some()
    }

    /// Returns the types by their role. Returns `None` if the header is not that of a handler; the reasons are added to
    /// `errors`.
    pub(crate) fn shape(&self, is_best_effort: bool, errors: &mut Vec<Error>) -> Option<Shape> {
        let before = errors.len();
        self.check_kind(errors);
        let shape = self.sort(is_best_effort, errors);
        shape.filter(|_| errors.len() == before)
    }

    fn check_kind(&self, errors: &mut Vec<Error>) {
        let mut refuse = |tokens: &dyn ToTokens, text: &str| errors.push(Error::new_spanned(tokens, text));
        let sig = &self.sig;
        if sig.asyncness.is_none() {
            refuse(&sig.fn_token, &format!("a handler is async: {USAGE}"));
        }
        if let Some(receiver) = sig.receiver() {
            refuse(receiver, METHOD);
        }
        if let Some(unsafety) = &sig.unsafety {
            refuse(unsafety, UNSAFE);
        }
        for param in sig.generics.params.iter().filter(|param| !matches!(param, GenericParam::Lifetime(_))) {
            refuse(param, GENERIC);
        }
        if matches!(sig.output, ReturnType::Default) {
            refuse(&sig.ident, &format!("a handler says whether it failed: {USAGE}"));
        }
    }

    fn sort(&self, is_best_effort: bool, errors: &mut Vec<Error>) -> Option<Shape> {
        let all = self.sig.inputs.iter().enumerate().filter_map(|(at, input)| match input {
            FnArg::Typed(typed) => Some((at, &*typed.ty)),
            FnArg::Receiver(_) => None,
        });
        let (connections, others): (Vec<_>, Vec<_>) = all.partition(|(_, ty)| exclusive(ty).is_some());
        let parens = self.sig.paren_token.span.join();
        if self.sig.inputs.is_empty() {
            errors.push(Error::new(parens, format!("a handler takes a message: {USAGE}")));
        } else if connections.is_empty() && !is_best_effort {
            errors.push(Error::new(parens, NO_CONNECTION));
        }
        for (nth, (at, ty)) in connections.iter().enumerate() {
            if is_best_effort {
                errors.push(Error::new_spanned(ty, BEST_EFFORT));
            } else if *at == 0 {
                let text = format!("the first parameter is the message, and the connection comes behind it: {USAGE}");
                errors.push(Error::new_spanned(ty, text));
            } else if nth > 0 {
                errors.push(Error::new_spanned(ty, TWO_CONNECTIONS));
            }
        }
        let (mut message, mut params) = (None, Vec::new());
        for (at, ty) in others {
            match at {
                0 => message = owned(ty, "the message", errors),
                // Without a connection, a parameter that borrows may have been meant as one.
                _ if connections.is_empty() && !is_best_effort => {}
                _ => params.extend(owned(ty, "an extractor", errors)),
            }
        }
        if let Some(seventh) = params.get(MAX_PARAMS) {
            let text = format!("a handler has at most {MAX_PARAMS} extractors; take one `State<T>` with more in it");
            errors.push(Error::new_spanned(seventh, text));
        }
        if message.as_ref().is_some_and(|message| batched(message).is_some()) {
            for ty in params.iter().filter(|ty| is_of_one(ty)) {
                errors.push(Error::new_spanned(ty, OF_ONE));
            }
        }
        let (connection_at, connection) = match connections.first() {
            Some((at, ty)) => (Some(*at), Some(made_static(exclusive(ty)?))),
            None if is_best_effort => (None, None),
            None => return None,
        };
        let ReturnType::Type(_, output) = &self.sig.output else { return None };
        let input: Type = message?;
        let (message, is_batch) = match batched(&input) {
            Some(message) => (message.clone(), true),
            None => (input.clone(), false),
        };
        Some(Shape { message, input, params, connection, is_batch, connection_at, output: Type::clone(output) })
    }
}
