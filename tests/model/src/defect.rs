//! The declaration of the broken rules of each part.

/// Declares the rules that are broken in one part, each with what is done instead of it, and the property that this violates.
macro_rules! defects {
    ($($rule:ident: $instead:literal => $property:ident,)*) => {
        /// One rule that is broken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Defect {
            $($rule,)*
        }

        impl Defect {
            /// All of them, each with what is done instead of the rule, and the property that it violates.
            pub(crate) const ALL: &'static [(Self, &'static str, crate::property::Property)] =
                &[$((Self::$rule, $instead, crate::property::Property::$property)),*];
        }
    };
}

pub(crate) use defects;
