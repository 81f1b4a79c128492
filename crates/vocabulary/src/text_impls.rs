//! Implementations of `Display` and `Debug` that only name a text or some fields.

/// Implements `Display` with a text of the value: a field or a method without arguments. It honours width and alignment.
///
/// ```
/// struct Zone(String);
/// lanyard_vocabulary::display_text!(Zone, 0);
///
/// assert_eq!(format!("{:>4}", Zone("a".to_owned())), "   a");
/// ```
#[macro_export]
macro_rules! display_text {
    ($type:ty, $field:tt $($call:tt)*) => {
        impl ::std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.pad(::std::convert::AsRef::<str>::as_ref(&self.$field $($call)*))
            }
        }
    };
}

/// Implements `Debug` with some fields of a struct. The others may be secret, or have no text.
///
/// ```
/// struct Login {
///     user: &'static str,
///     password: &'static str,
/// }
/// lanyard_vocabulary::debug_fields!(Login { user });
///
/// let login = Login { user: "a", password: "planted" };
/// assert_eq!(format!("{login:?}"), r#"Login { user: "a", .. }"#);
/// # assert_eq!(login.password, "planted");
/// ```
#[macro_export]
macro_rules! debug_fields {
    ($type:ident $({ $($field:ident),* })?) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut debug = formatter.debug_struct(stringify!($type));
                $($(debug.field(stringify!($field), &self.$field);)*)?
                debug.finish_non_exhaustive()
            }
        }
    };
}

/// Implements `Debug` with a text that says nothing about the value, which is secret.
#[macro_export]
macro_rules! debug_text {
    ($type:ty, $text:literal) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.write_str($text)
            }
        }
    };
}
