//! The classification of parameter types.

use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Error, GenericArgument, Lifetime, ParenthesizedGenericArguments, PathArguments, PathSegment, TraitBound, Type,
    TypeBareFn, TypeImplTrait, TypeReference,
};

/// Returns the referent of an exclusive reference. A type produced by a `macro_rules` macro is wrapped in a group.
pub(crate) fn exclusive(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(TypeReference { mutability: Some(_), elem, .. }) => Some(elem),
        Type::Group(group) => exclusive(&group.elem),
        Type::Paren(paren) => exclusive(&paren.elem),
        _ => None,
    }
}

/// Returns whether the type is written as an `Option`, by any path.
pub(crate) fn is_option(ty: &Type) -> bool {
    last(ty).is_some_and(|last| last.ident == "Option")
}

/// Returns the message type of a `Batch`, written by any path.
pub(crate) fn batched(ty: &Type) -> Option<&Type> {
    let last = last(ty).filter(|last| last.ident == "Batch")?;
    match &last.arguments {
        PathArguments::AngleBracketed(of) => of.args.iter().find_map(|of| match of {
            GenericArgument::Type(of) => Some(of),
            _ => None,
        }),
        _ => None,
    }
}

/// Returns whether the type describes a single delivery; a batch has many.
pub(crate) fn is_of_one(ty: &Type) -> bool {
    last(ty).is_some_and(|last| ONE.iter().any(|name| last.ident == name))
}

/// The extractors that describe a single delivery.
const ONE: [&str; 7] =
    ["CloudEvent", "Delivery", "Headers", "IdempotencyKey", "OutboundKey", "PartitionKey", "Subject"];

/// Returns whether the type is an extractor that cannot contain the key of an external call, written by any path.
pub(crate) fn is_keyless(ty: &Type) -> bool {
    last(ty).is_some_and(|last| KEYLESS.iter().any(|name| last.ident == name))
}

/// The extractors of idem that a call can take, without its key.
const KEYLESS: [&str; 7] = ["CloudEvent", "Delivery", "Headers", "IdempotencyKey", "PartitionKey", "State", "Subject"];

/// Returns whether the type is the answer of an external call, written by any path.
pub(crate) fn is_called(ty: &Type) -> bool {
    last(ty).is_some_and(|last| last.ident == "Called")
}

/// Returns the referent of a shared reference without a lifetime.
pub(crate) fn shared(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(TypeReference { mutability: None, elem, .. }) => Some(elem),
        Type::Group(group) => shared(&group.elem),
        Type::Paren(paren) => shared(&paren.elem),
        _ => None,
    }
}

/// Returns whether the type is written as a `PhantomData`, by any path.
pub(crate) fn is_phantom(ty: &Type) -> bool {
    last(ty).is_some_and(|last| last.ident == "PhantomData")
}

/// Returns the last segment of a path.
fn last(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        Type::Group(group) => last(&group.elem),
        Type::Paren(paren) => last(&paren.elem),
        _ => None,
    }
}

/// Replaces each lifetime by `'static`: the associated type of a trait cannot have the lifetime of a call.
pub(crate) fn made_static(ty: &Type) -> Type {
    struct Static;
    impl VisitMut for Static {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            *lifetime = Lifetime::new("'static", lifetime.span());
        }
    }
    let mut ty = ty.clone();
    Static.visit_type_mut(&mut ty);
    ty
}

/// Returns the type of a parameter that is created for the handler. It must own its contents.
pub(crate) fn owned(ty: &Type, what: &str, errors: &mut Vec<Error>) -> Option<Type> {
    let mut flaw = Flaw(None);
    flaw.visit_type_mut(&mut ty.clone());
    let Some((span, found)) = flaw.0 else { return Some(ty.clone()) };
    errors.push(Error::new(span, format!("{what} cannot {found}")));
    None
}

/// The first part of a type that ties it to the call or leaves it open.
struct Flaw(Option<(Span, &'static str)>);

impl VisitMut for Flaw {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident != "static" {
            let text = "borrow: the worker creates it for each delivery; use an owned type";
            self.0.get_or_insert((lifetime.span(), text));
        }
    }

    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        if reference.lifetime.is_none() {
            self.0.get_or_insert((reference.and_token.span, "be a reference: take it by value"));
        }
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_type_impl_trait_mut(&mut self, ty: &mut TypeImplTrait) {
        self.0.get_or_insert((ty.impl_token.span, "be `impl Trait`: name the type"));
    }

    // A function does not hold its arguments and return value, and a lifetime bound by `for<'a>` is not a borrow.
    fn visit_type_bare_fn_mut(&mut self, _: &mut TypeBareFn) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}
    fn visit_trait_bound_mut(&mut self, bound: &mut TraitBound) {
        if bound.lifetimes.is_none() {
            visit_mut::visit_trait_bound_mut(self, bound);
        }
    }
}
