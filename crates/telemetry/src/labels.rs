//! Labels whose values are bounded by their types.

/// Makes an enum the value of a label. The values of a label have to be few: each is a series that
/// a monitoring system keeps, so texts that come from outside are no labels.
///
/// ```
/// lanyard_telemetry::label_values! {
///     /// What became of a write.
///     pub enum Written {
///         /// It was needed.
///         Changed = "changed",
///         /// It was not.
///         Unchanged = "unchanged",
///     }
/// }
/// assert_eq!(Written::Changed.as_str(), "changed");
/// ```
#[macro_export]
macro_rules! label_values {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $value:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// Every value.
            $visibility const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The value of the label.
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)+
                }
            }
        }

        impl $crate::prometheus_client::encoding::EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut $crate::prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> ::core::result::Result<(), ::core::fmt::Error> {
                ::core::fmt::Write::write_str(encoder, self.as_str())
            }
        }
    };
}
