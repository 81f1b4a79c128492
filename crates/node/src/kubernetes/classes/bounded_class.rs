//! Deserializes a SecretProviderClass from the Kubernetes API, with only the fields that the node uses and a
//! bounded number of entries.
//!
//! A tenant writes the class, and 1.5 MB of JSON can have half a million entries, each of which takes up to
//! fifty times as much memory as in JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lanyard_api::SecretProviderClass;
use lanyard_api::secret_provider_class::{SecretObject, SecretObjectData, SecretProviderClassSpec};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A class without labels, managed fields, status, and other fields that the node does not use.
///
/// Entries of a list or a map beyond [`MAX_ENTRIES`] are skipped. Such a class exceeds the size limit of the
/// cache, whatever its entries contain.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "BoundedClassFields")]
pub(super) struct BoundedClass(pub(super) SecretProviderClass);

impl Resource for BoundedClass {
    const API_VERSION: &'static str = SecretProviderClass::API_VERSION;
    const GROUP: &'static str = SecretProviderClass::GROUP;
    const KIND: &'static str = SecretProviderClass::KIND;
    const VERSION: &'static str = SecretProviderClass::VERSION;
    const URL_PATH_SEGMENT: &'static str = SecretProviderClass::URL_PATH_SEGMENT;
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for BoundedClass {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BoundedClassFields {
    metadata: BoundedClassMetadata,
    spec: BoundedClassSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundedClassMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    annotations: Option<BoundedStringMap>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundedClassSpec {
    provider: Option<String>,
    parameters: Option<BoundedStringMap>,
    secret_objects: BoundedList<BoundedSecretObject>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundedSecretObject {
    secret_name: Option<String>,
    #[serde(rename = "type")]
    secret_type: Option<String>,
    labels: BoundedStringMap,
    annotations: BoundedStringMap,
    data: BoundedList<BoundedSecretObjectData>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundedSecretObjectData {
    object_name: Option<String>,
    key: Option<String>,
}

impl From<BoundedClassFields> for BoundedClass {
    fn from(BoundedClassFields { metadata, spec }: BoundedClassFields) -> Self {
        let mut annotations = metadata.annotations.map(|BoundedStringMap(pairs)| pairs);
        if let Some(annotations) = &mut annotations {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            annotations,
            ..ObjectMeta::default()
        };
        let spec = SecretProviderClassSpec {
            provider: spec.provider,
            parameters: spec.parameters.map(|BoundedStringMap(pairs)| pairs),
            secret_objects: spec.secret_objects.0.into_iter().map(SecretObject::from).collect(),
            ..SecretProviderClassSpec::default()
        };
        Self(SecretProviderClass {
            api_version: SecretProviderClass::API_VERSION.to_owned(),
            kind: SecretProviderClass::KIND.to_owned(),
            metadata,
            spec,
            ..SecretProviderClass::default()
        })
    }
}

impl From<BoundedSecretObject> for SecretObject {
    fn from(secret: BoundedSecretObject) -> Self {
        let file = |BoundedSecretObjectData { object_name, key }| SecretObjectData {
            object_name,
            key,
            ..SecretObjectData::default()
        };
        Self {
            secret_name: secret.secret_name,
            secret_type: secret.secret_type,
            labels: secret.labels.0,
            annotations: secret.annotations.0,
            data: secret.data.0.into_iter().map(file).collect(),
            ..Self::default()
        }
    }
}

/// Counts the entries of a deserialized list or map.
trait CountEntries {
    fn entry_count(&self) -> usize;
}

impl CountEntries for BoundedSecretObjectData {
    fn entry_count(&self) -> usize {
        1
    }
}

impl CountEntries for BoundedSecretObject {
    fn entry_count(&self) -> usize {
        1 + self.labels.0.len() + self.annotations.0.len() + self.data.0.len()
    }
}

/// A list, truncated when its items have [`MAX_ENTRIES`] entries together.
struct BoundedList<T>(Vec<T>);

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + CountEntries> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedListVisitor(PhantomData))
    }
}

struct BoundedListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + CountEntries> Visitor<'de> for BoundedListVisitor<T> {
    type Value = BoundedList<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BoundedList<T>, A::Error> {
        let mut items = Vec::new();
        let mut entries = 0;
        while entries < MAX_ENTRIES {
            let Some(item) = list.next_element::<T>()? else { return Ok(BoundedList(items)) };
            entries += item.entry_count();
            items.push(item);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(BoundedList(items))
    }
}

/// A map, truncated to its first [`MAX_ENTRIES`] pairs.
#[derive(Default)]
struct BoundedStringMap(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for BoundedStringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BoundedStringMapVisitor)
    }
}

struct BoundedStringMapVisitor;

impl<'de> Visitor<'de> for BoundedStringMapVisitor {
    type Value = BoundedStringMap;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BoundedStringMap, A::Error> {
        let mut pairs = BTreeMap::new();
        while pairs.len() < MAX_ENTRIES {
            let Some((name, text)) = map.next_entry()? else { return Ok(BoundedStringMap(pairs)) };
            pairs.insert(name, text);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(BoundedStringMap(pairs))
    }
}

/// This many entries alone exceed the size limit of a class: more than 384 KiB at 128 bytes each.
const MAX_ENTRIES: usize = 3_073;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::store::{MAX_CLASS_BYTES, class_bytes};
    use super::*;

    fn bounded_class(class: &Value) -> SecretProviderClass {
        serde_json::from_value::<BoundedClass>(class.clone()).unwrap().0
    }

    fn count_class_entries(class: &SecretProviderClass) -> usize {
        let secrets = &class.spec.secret_objects;
        let of_secret = |secret: &SecretObject| {
            1 + secret.labels.len() + secret.annotations.len() + secret.data.len()
        };
        class.metadata.annotations.as_ref().map_or(0, BTreeMap::len)
            + class.spec.parameters.as_ref().map_or(0, BTreeMap::len)
            + secrets.iter().map(of_secret).sum::<usize>()
    }

    #[test]
    fn unused_fields_are_dropped_on_deserialization() {
        let class = json!({
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClass",
            "metadata": {
                "name": "c",
                "namespace": "n",
                "uid": "u",
                "resourceVersion": "7",
                "annotations": {"a": "b"},
                "labels": {"l": "m"},
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {
                "provider": "azure",
                "parameters": {"keyvaultName": "kv"},
                "secretObjects": [{
                    "secretName": "s",
                    "type": "Opaque",
                    "labels": {"x": "y"},
                    "annotations": {"z": "w"},
                    "data": [{"objectName": "o", "key": "k", "other": 1}],
                    "other": {},
                }],
                "other": [],
            },
            "status": {"byPod": [{"id": "p", "namespace": "n"}]},
        });
        let mut whole: SecretProviderClass = serde_json::from_value(class.clone()).unwrap();
        whole.metadata.labels = None;
        whole.metadata.managed_fields = None;
        whole.unknown.clear();
        whole.spec.unknown.clear();
        for secret in &mut whole.spec.secret_objects {
            secret.unknown.clear();
            secret.data.iter_mut().for_each(|file| file.unknown.clear());
        }
        assert_eq!(bounded_class(&class), whole);
    }

    #[test]
    fn missing_fields_are_empty() {
        assert_eq!(bounded_class(&json!({})).spec, SecretProviderClassSpec::default());
        let nulls = json!({"metadata": {"annotations": null}, "spec": {"parameters": null}});
        assert_eq!(bounded_class(&nulls).spec, SecretProviderClassSpec::default());
    }

    #[test]
    fn oversized_class_keeps_a_bounded_number_of_entries() {
        const MANY: usize = 50_000;
        let pairs: Value = (0..MANY).map(|number| (number.to_string(), json!(""))).collect();
        let list = json!(vec![json!({}); MANY]);
        let secret = |name: &str, entries: &Value| json!({"secretObjects": [{name: entries}]});
        let nested = json!(vec![json!({"data": vec![json!({}); 100]}); MANY / 100]);
        let cases = [
            json!({"metadata": {"annotations": pairs}}),
            json!({"spec": {"parameters": pairs}}),
            json!({"spec": {"secretObjects": list}}),
            json!({"spec": {"secretObjects": nested}}),
            json!({"spec": secret("data", &list)}),
            json!({"spec": secret("labels", &pairs)}),
            json!({"spec": secret("annotations", &pairs)}),
        ];
        for case in cases {
            let class = bounded_class(&case);
            assert!(class_bytes(&class) > MAX_CLASS_BYTES);
            let most = MAX_ENTRIES + 101;
            assert!(count_class_entries(&class) <= most, "{} entries", count_class_entries(&class));
        }
    }
}
