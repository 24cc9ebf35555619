//! What the type of a parameter says about it.

use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Error, GenericArgument, Lifetime, ParenthesizedGenericArguments, PathArguments, PathSegment, TraitBound, Type,
    TypeBareFn, TypeImplTrait, TypeReference,
};

/// What an exclusive reference refers to. A type that comes out of a `macro_rules` is in a group of its own.
pub(crate) fn exclusive(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(TypeReference { mutability: Some(_), elem, .. }) => Some(elem),
        Type::Group(group) => exclusive(&group.elem),
        Type::Paren(paren) => exclusive(&paren.elem),
        _ => None,
    }
}

/// Whether it is written as an `Option`, by whatever path.
pub(crate) fn is_option(ty: &Type) -> bool {
    last(ty).is_some_and(|last| last.ident == "Option")
}

/// What a `Batch` is of, by whatever path it is written.
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

/// Whether it says something of one delivery, which a batch has many of.
pub(crate) fn is_of_one(ty: &Type) -> bool {
    last(ty).is_some_and(|last| ONE.iter().any(|name| last.ident == name))
}

/// The extractors that say something of one delivery.
const ONE: [&str; 6] = ["CloudEvent", "Delivery", "Headers", "IdempotencyKey", "PartitionKey", "Subject"];

/// The last part of a path.
fn last(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        Type::Group(group) => last(&group.elem),
        Type::Paren(paren) => last(&paren.elem),
        _ => None,
    }
}

/// With `'static` for each lifetime: the associated type of a trait cannot have that of a call.
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

/// The type of a parameter that is made for the handler, and so has to own what it holds.
pub(crate) fn owned(ty: &Type, what: &str, errors: &mut Vec<Error>) -> Option<Type> {
    let mut flaw = Flaw(None);
    flaw.visit_type_mut(&mut ty.clone());
    let Some((span, found)) = flaw.0 else { return Some(ty.clone()) };
    errors.push(Error::new(span, format!("{what} cannot {found}")));
    None
}

/// The first thing that ties a type to the call, or leaves it open.
struct Flaw(Option<(Span, &'static str)>);

impl VisitMut for Flaw {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident != "static" {
            let text = "borrow: the worker makes it anew for each delivery; use an owned type";
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

    // What a function takes and returns is not held by it, and a lifetime that is bound by `for<'a>` is no borrow.
    fn visit_type_bare_fn_mut(&mut self, _: &mut TypeBareFn) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}
    fn visit_trait_bound_mut(&mut self, bound: &mut TraitBound) {
        if bound.lifetimes.is_none() {
            visit_mut::visit_trait_bound_mut(self, bound);
        }
    }
}
