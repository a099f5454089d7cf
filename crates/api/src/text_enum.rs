//! Enumerations that survive a value they do not know.

/// Declares an enumeration that is stored as text. A text that is not in the list becomes `Unknown(text)`, is written
/// back unchanged, and never stops a watch.
///
/// `closed` lists the values in the schema, so that the API server refuses others; `open` leaves the field a plain
/// string, for what the Go provider's schema did not restrict (S24) or somebody else writes.
macro_rules! text_enum {
    ($(#[$meta:meta])* $name:ident, $schema:ident { $($(#[$variant_meta:meta])* $variant:ident => $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A text that this version does not know, as it is stored.
            Unknown(String),
        }

        impl $name {
            /// Every known value.
            pub const KNOWN: &'static [$name] = &[$($name::$variant),+];

            /// The text as it is stored.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Unknown(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => $name::$variant,)+
                    other => $name::Unknown(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::text_enum::text_enum!(@schema $schema $($text),+)
            }
        }
    };
    (@schema closed $($text:literal),+) => { schemars::json_schema!({ "type": "string", "enum": [$($text),+] }) };
    (@schema open $($text:literal),+) => { schemars::json_schema!({ "type": "string" }) };
}
pub(crate) use text_enum;
