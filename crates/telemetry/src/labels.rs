//! Metric labels whose types bound their values.

/// Defines an enum as the values of a metric label. A label needs few values, because each is a
/// series in the monitoring system; never use text from outside the program.
///
/// ```
/// lanyard_telemetry::label_values! {
///     /// The result of a write.
///     pub enum Written {
///         /// The object was changed.
///         Changed = "changed",
///         /// The object was already up to date.
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
