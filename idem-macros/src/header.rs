//! The function's header, and what a handler's header has to be. The body is not parsed, only passed on.

use proc_macro2::{Span, TokenStream};
use syn::parse::{Parse, ParseStream, Result};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Error, FnArg, GenericParam, Lifetime, ParenthesizedGenericArguments, ReturnType, Signature, Type,
    TypeBareFn, TypeImplTrait, TypeReference, Visibility,
};

const USAGE: &str = "`async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`";

/// As many as there are tuples that implement `Param`.
const MAX_PARAMS: usize = 6;

/// What stands before the body.
pub(crate) struct Header {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
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
    /// Whether it is a method. Then nothing can be added beside it: an `impl` block takes no types.
    pub(crate) fn is_method(&self) -> bool {
        self.sig.receiver().is_some()
    }
}

/// The parameters by what they are for.
pub(crate) struct Shape {
    pub(crate) message: Type,
    /// The extractors, in order.
    pub(crate) params: Vec<Type>,
    /// Without its `&mut`, and with `'static` for each lifetime.
    pub(crate) connection: Type,
    /// Where the connection stands among all parameters; the message is at 0.
    pub(crate) connection_at: usize,
}

impl Header {
    /// Sorts the parameters. `None` if the header is not a handler's; why is added to `errors`.
    pub(crate) fn shape(&self, errors: &mut Vec<Error>) -> Option<Shape> {
        let before = errors.len();
        self.check_kind(errors);
        let inputs = self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(&*typed.ty),
            FnArg::Receiver(receiver) => {
                let text =
                    "a handler is a free function: move it out of the `impl` block, and take `State<T>` for `self`";
                errors.push(Error::new_spanned(receiver, text));
                None
            }
        });
        let inputs = inputs.collect::<Vec<_>>();
        let mut message = None;
        let mut params = Vec::new();
        let mut connection = None;
        for (at, ty) in inputs.into_iter().enumerate() {
            match exclusive(ty) {
                Some(_) if at == 0 => {
                    let text =
                        format!("the first parameter is the message, and the connection comes behind it: {USAGE}");
                    errors.push(Error::new_spanned(ty, text));
                    connection = Some((at, ty.clone()));
                }
                Some(_) if connection.is_some() => {
                    let text = "a handler has one `&mut`, the connection; take other things by value, as `State<T>`";
                    errors.push(Error::new_spanned(ty, text));
                }
                Some(inner) => {
                    let mut inner = inner.clone();
                    Statics.visit_type_mut(&mut inner);
                    connection = Some((at, inner));
                }
                None if at == 0 => message = owned(ty, "the message", errors),
                None => params.push(ty),
            }
        }
        if self.sig.inputs.is_empty() {
            errors.push(Error::new(self.sig.paren_token.span.join(), format!("a handler takes a message: {USAGE}")));
        } else if connection.is_none() {
            let text = "a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or \
                        `tx: &mut SqliteConnection` (written out, without an alias for the reference)";
            errors.push(Error::new(self.sig.paren_token.span.join(), text));
        }
        // Without a connection, what borrows may have been meant as one.
        let params = params.into_iter().filter(|_| connection.is_some());
        let params = params.filter_map(|ty| owned(ty, "an extractor", errors)).collect::<Vec<_>>();
        if params.len() > MAX_PARAMS {
            let text = format!("a handler has at most {MAX_PARAMS} extractors; take one `State<T>` with more in it");
            errors.push(Error::new_spanned(&params[MAX_PARAMS], text));
        }
        if matches!(self.sig.output, ReturnType::Default) {
            errors.push(Error::new_spanned(&self.sig.ident, format!("a handler says whether it failed: {USAGE}")));
        }
        let (connection_at, connection) = connection?;
        let shape = Shape { message: message?, params, connection, connection_at };
        (errors.len() == before).then_some(shape)
    }

    fn check_kind(&self, errors: &mut Vec<Error>) {
        if self.sig.asyncness.is_none() {
            errors.push(Error::new_spanned(self.sig.fn_token, format!("a handler is async: {USAGE}")));
        }
        if let Some(unsafety) = &self.sig.unsafety {
            errors.push(Error::new_spanned(
                unsafety,
                "a handler is called by the worker, which can keep no promise for it: remove `unsafe`",
            ));
        }
        for param in &self.sig.generics.params {
            if !matches!(param, GenericParam::Lifetime(_)) {
                let text = "a handler has no type parameters: name the types";
                errors.push(Error::new_spanned(param, text));
            }
        }
    }
}

/// What an exclusive reference refers to. A type that comes out of a `macro_rules` is in a group of its own.
fn exclusive(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(TypeReference { mutability: Some(_), elem, .. }) => Some(elem),
        Type::Group(group) => exclusive(&group.elem),
        Type::Paren(paren) => exclusive(&paren.elem),
        _ => None,
    }
}

/// The type of a parameter that is made for the handler, and so owns what it holds.
fn owned(ty: &Type, what: &str, errors: &mut Vec<Error>) -> Option<Type> {
    let mut borrows = Borrows(None);
    borrows.visit_type_mut(&mut ty.clone());
    match borrows.0 {
        Some((span, found)) => {
            errors.push(Error::new(span, format!("{what} cannot {found}")));
            None
        }
        None => Some(ty.clone()),
    }
}

/// Makes each lifetime `'static`: the associated type of a trait cannot have that of a call.
struct Statics;

impl VisitMut for Statics {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        *lifetime = Lifetime::new("'static", lifetime.span());
    }
}

/// Finds the first thing that ties a type to the call, or leaves it open.
struct Borrows(Option<(Span, &'static str)>);

impl VisitMut for Borrows {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident != "static" {
            self.0.get_or_insert((
                lifetime.span(),
                "borrow: the worker makes it anew for each delivery; use an owned type",
            ));
        }
    }

    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        if reference.lifetime.is_none() {
            let text = "be a reference: take it by value";
            self.0.get_or_insert((reference.and_token.span, text));
        }
        visit_mut::visit_type_reference_mut(self, reference);
    }

    /// What a function type takes and returns is not held by it.
    fn visit_type_bare_fn_mut(&mut self, _: &mut TypeBareFn) {}

    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}

    fn visit_type_impl_trait_mut(&mut self, ty: &mut TypeImplTrait) {
        self.0.get_or_insert((ty.impl_token.span, "be `impl Trait`: name the type"));
    }
}
