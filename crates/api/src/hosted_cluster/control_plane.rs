//! `managedIdentities.controlPlane`: one field for every [`Component`].

use std::collections::BTreeMap;
use std::fmt;

use lanyard_vocabulary::Component;
use lanyard_vocabulary::component::IdentityFieldParent;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{IdentityVault, ManagedIdentity};

const KEY_VAULT_FIELD: &str = "managedIdentitiesKeyVault";

/// `managedIdentities.controlPlane`.
///
/// The field names come from [`Component`], so a new component needs no change here. A null counts
/// as absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ControlPlaneIdentities {
    /// The vault with the credentials of all components.
    pub key_vault: Option<IdentityVault>,
    /// The configured identities.
    pub identities: BTreeMap<Component, ManagedIdentity>,
    /// Fields that this type does not define, preserved as they were read.
    pub unknown: Map<String, Value>,
}

impl Serialize for ControlPlaneIdentities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(vault) = &self.key_vault {
            map.serialize_entry(KEY_VAULT_FIELD, vault)?;
        }
        for (component, identity) in &self.identities {
            map.serialize_entry(component.name(), identity)?;
        }
        for (key, value) in &self.unknown {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ControlPlaneIdentities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ControlPlaneIdentitiesVisitor)
    }
}

struct ControlPlaneIdentitiesVisitor;

impl<'de> Visitor<'de> for ControlPlaneIdentitiesVisitor {
    type Value = ControlPlaneIdentities;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the identities of the control plane")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = ControlPlaneIdentities::default();
        while let Some(key) = map.next_key::<String>()? {
            let component = key.parse::<Component>().ok().filter(|component| {
                component.definition().parent == IdentityFieldParent::ControlPlane
            });
            match component {
                Some(component) => {
                    if let Some(identity) = map.next_value()? {
                        read.identities.insert(component, identity);
                    }
                }
                None if key == KEY_VAULT_FIELD => read.key_vault = map.next_value()?,
                None => {
                    let value = map.next_value()?;
                    read.unknown.insert(key, value);
                }
            }
        }
        Ok(read)
    }
}
