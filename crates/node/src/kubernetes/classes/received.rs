//! A SecretProviderClass as the Kubernetes API sends it. Only what the node uses is kept of it, and
//! of that no more than a class may have.
//!
//! A tenant writes the class, and 1.5 MB of JSON can have half a million entries, each of which
//! takes up to fifty times as much in memory as in JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lanyard_api::SecretProviderClass;
use lanyard_api::secret_provider_class::{SecretObject, SecretObjectData, SecretProviderClassSpec};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A class without labels, managed fields, status, and all that the node does not use.
///
/// Of a list or a map with more than [`MOST_ENTRIES`] entries, the rest is skipped. The class is too
/// large to be kept then, whatever the entries hold.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Class")]
pub(super) struct ReceivedClass(pub(super) SecretProviderClass);

impl Resource for ReceivedClass {
    const API_VERSION: &'static str = SecretProviderClass::API_VERSION;
    const GROUP: &'static str = SecretProviderClass::GROUP;
    const KIND: &'static str = SecretProviderClass::KIND;
    const VERSION: &'static str = SecretProviderClass::VERSION;
    const URL_PATH_SEGMENT: &'static str = SecretProviderClass::URL_PATH_SEGMENT;
    type Scope = k8s_openapi::NamespaceResourceScope;
}

impl k8s_openapi::Metadata for ReceivedClass {
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
struct Class {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    annotations: Option<Pairs>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    provider: Option<String>,
    parameters: Option<Pairs>,
    secret_objects: List<SyncedSecret>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SyncedSecret {
    secret_name: Option<String>,
    #[serde(rename = "type")]
    secret_type: Option<String>,
    labels: Pairs,
    annotations: Pairs,
    data: List<File>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    object_name: Option<String>,
    key: Option<String>,
}

impl From<Class> for ReceivedClass {
    fn from(Class { metadata, spec }: Class) -> Self {
        let mut annotations = metadata.annotations.map(|Pairs(pairs)| pairs);
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
            parameters: spec.parameters.map(|Pairs(pairs)| pairs),
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

impl From<SyncedSecret> for SecretObject {
    fn from(secret: SyncedSecret) -> Self {
        let file = |File { object_name, key }| SecretObjectData {
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

/// How many entries a list or a map has once it is read.
trait Entries {
    fn entries(&self) -> usize;
}

impl Entries for File {
    fn entries(&self) -> usize {
        1
    }
}

impl Entries for SyncedSecret {
    fn entries(&self) -> usize {
        1 + self.labels.0.len() + self.annotations.0.len() + self.data.0.len()
    }
}

/// The items of a list, until they have [`MOST_ENTRIES`] together.
struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + Entries> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Entries> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List<T>, A::Error> {
        let mut items = Vec::new();
        let mut entries = 0;
        while entries < MOST_ENTRIES {
            let Some(item) = list.next_element::<T>()? else { return Ok(List(items)) };
            entries += item.entries();
            items.push(item);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(List(items))
    }
}

/// The first [`MOST_ENTRIES`] pairs of a map.
#[derive(Default)]
struct Pairs(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs = BTreeMap::new();
        while pairs.len() < MOST_ENTRIES {
            let Some((name, text)) = map.next_entry()? else { return Ok(Pairs(pairs)) };
            pairs.insert(name, text);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Pairs(pairs))
    }
}

/// So many entries alone make a class too large, as they have more than 384 KiB at 128 bytes each.
const MOST_ENTRIES: usize = 3_073;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::store::{LARGEST_CLASS, weight_of};
    use super::*;

    fn received(class: &Value) -> SecretProviderClass {
        serde_json::from_value::<ReceivedClass>(class.clone()).unwrap().0
    }

    fn entries(class: &SecretProviderClass) -> usize {
        let secrets = &class.spec.secret_objects;
        let of_secret = |secret: &SecretObject| {
            1 + secret.labels.len() + secret.annotations.len() + secret.data.len()
        };
        class.metadata.annotations.as_ref().map_or(0, BTreeMap::len)
            + class.spec.parameters.as_ref().map_or(0, BTreeMap::len)
            + secrets.iter().map(of_secret).sum::<usize>()
    }

    #[test]
    fn what_the_node_uses_is_received_and_nothing_else() {
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
        assert_eq!(received(&class), whole);
    }

    #[test]
    fn parts_that_are_missing_are_empty() {
        assert_eq!(received(&json!({})).spec, SecretProviderClassSpec::default());
        let nulls = json!({"metadata": {"annotations": null}, "spec": {"parameters": null}});
        assert_eq!(received(&nulls).spec, SecretProviderClassSpec::default());
    }

    #[test]
    fn of_a_class_with_too_many_entries_as_many_are_kept_as_make_it_too_large() {
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
            let class = received(&case);
            assert!(weight_of(&class) > LARGEST_CLASS);
            let most = MOST_ENTRIES + 101;
            assert!(entries(&class) <= most, "{} entries", entries(&class));
        }
    }
}
