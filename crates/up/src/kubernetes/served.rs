//! What of a pod the stand-in serves: its volumes, with every name that becomes a path looked at.
//!
//! Names come from the API server, and what they name is made by a process that may mount. The API
//! server has looked at them itself; who reaches its store has not.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Volume};
use lanyard_kubelet::{InlineVolume, PodSpec};

use super::node_plugin::DRIVER;

/// A pod whose volumes are served.
#[derive(Debug, Clone)]
pub(super) struct ServedPod {
    /// What the kubelet mounts.
    pub(super) spec: PodSpec,
    /// What is written here.
    pub(super) secrets: Vec<SecretVolume>,
}

/// A Secret that the containers of a pod find as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretVolume {
    /// The name of the volume.
    pub(super) name: String,
    /// The name of the Secret.
    pub(super) secret: String,
    /// The file of each key; without any, every key is a file of its name.
    files: BTreeMap<String, PathBuf>,
}

/// Names that would lead out of where they belong. Nothing of the pod is made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", joined(problems))]
pub(super) struct UnsafeNames {
    problems: Vec<UnsafeName>,
}

/// A name that would lead out of where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {name:?} is no {wanted}")]
struct UnsafeName {
    field: String,
    name: String,
    wanted: &'static str,
}

/// Looks at names, and keeps what is wrong with them.
#[derive(Debug, Default)]
struct Looked(Vec<UnsafeName>);

impl ServedPod {
    /// What of a pod is served.
    ///
    /// # Errors
    ///
    /// Every name that would lead out of where it belongs.
    pub(super) fn parse(pod: &Pod) -> Result<Self, UnsafeNames> {
        let mut looked = Looked::default();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let metadata = &pod.metadata;
        let uid = text(&metadata.uid);
        looked.name("metadata.uid", &uid);
        let mut spec = PodSpec::new(text(&metadata.namespace), text(&metadata.name), uid);
        let told = pod.spec.as_ref();
        if let Some(account) = told.and_then(|spec| spec.service_account_name.clone()) {
            spec = spec.with_service_account(account);
        }
        let group = told.and_then(|spec| spec.security_context.as_ref()?.fs_group);
        spec.fs_group = group.and_then(|group| u32::try_from(group).ok());
        let mut secrets = Vec::new();
        let volumes = told.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        for (index, volume) in volumes.iter().enumerate() {
            let field = format!("spec.volumes[{index}]");
            let inline = inline(volume);
            let secret = looked.secret(&field, volume);
            if inline.is_some() || secret.is_some() {
                looked.name(&format!("{field}.name"), &volume.name);
            }
            secrets.extend(secret);
            spec = inline.into_iter().fold(spec, PodSpec::with_volume);
        }
        looked.into_result(Self { spec, secrets })
    }
}

impl SecretVolume {
    /// The files of the volume, below its directory.
    ///
    /// # Errors
    ///
    /// Every key that is to be a file and is no name of one.
    pub(super) fn parse_files<'a>(
        &self,
        data: &'a BTreeMap<String, ByteString>,
    ) -> Result<Vec<(PathBuf, &'a [u8])>, UnsafeNames> {
        let mut looked = Looked::default();
        let mut files = Vec::new();
        for (key, content) in data {
            let file = if self.files.is_empty() {
                looked.name(&format!("data of Secret {}", self.secret), key);
                Some(PathBuf::from(key))
            } else {
                self.files.get(key).cloned()
            };
            files.extend(file.map(|file| (file, content.0.as_slice())));
        }
        looked.into_result(files)
    }
}

impl Looked {
    fn name(&mut self, field: &str, name: &str) {
        if !is_name(name) {
            self.problem(field, name, "plain name");
        }
    }

    fn secret(&mut self, field: &str, volume: &Volume) -> Option<SecretVolume> {
        let source = volume.secret.as_ref()?;
        let mut files = BTreeMap::new();
        for (index, item) in source.items.iter().flatten().enumerate() {
            // `a/b` is a file in a directory of the volume.
            if !item.path.split('/').all(is_name) {
                let field = format!("{field}.secret.items[{index}].path");
                self.problem(&field, &item.path, "path below the volume");
            }
            files.insert(item.key.clone(), PathBuf::from(&item.path));
        }
        let secret = source.secret_name.clone()?;
        Some(SecretVolume { name: volume.name.clone(), secret, files })
    }

    fn problem(&mut self, field: &str, name: &str, wanted: &'static str) {
        let (field, name) = (field.to_owned(), name.to_owned());
        self.0.push(UnsafeName { field, name, wanted });
    }

    fn into_result<T>(self, found: T) -> Result<T, UnsafeNames> {
        if self.0.is_empty() { Ok(found) } else { Err(UnsafeNames { problems: self.0 }) }
    }
}

/// The volume as the kubelet serves it, where it is one of our driver.
fn inline(volume: &Volume) -> Option<InlineVolume> {
    let csi = volume.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
    let attributes = csi.volume_attributes.iter().flatten();
    let plain = InlineVolume::new(&volume.name, DRIVER);
    Some(attributes.fold(plain, |inline, (key, value)| inline.with_attribute(key, value)))
}

/// Whether a text names one thing in a directory.
fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '\0'])
}

fn joined(problems: &[UnsafeName]) -> String {
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(change: impl FnOnce(&mut Value)) -> Result<ServedPod, UnsafeNames> {
        let mut pod = json!({
            "metadata": {"name": "disk-1", "namespace": "clusters-harbour", "uid": "u"},
            "spec": {
                "serviceAccountName": "lanyard-canary",
                "securityContext": {"fsGroup": 65532},
                "containers": [],
                "volumes": [
                    {"name": "certs", "csi": {"driver": DRIVER, "volumeAttributes": {"secretProviderClass": "c"}}},
                    {"name": "other", "csi": {"driver": "another.example.com"}},
                    {"name": "config", "secret": {"secretName": "s", "items": [
                        {"key": "cloud.conf", "path": "deep/azure.json"},
                        {"key": "absent", "path": "absent"},
                    ]}},
                    {"name": "whole", "secret": {"secretName": "t"}},
                ],
            },
        });
        change(&mut pod);
        ServedPod::parse(&serde_json::from_value(pod).unwrap())
    }

    fn data(keys: &[&str]) -> BTreeMap<String, ByteString> {
        keys.iter().map(|key| ((*key).to_owned(), ByteString(key.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn volumes_of_our_driver_and_secrets_are_served() {
        let served = parse(|_| ()).unwrap();
        let spec = &served.spec;
        assert_eq!((spec.service_account.as_str(), spec.fs_group), ("lanyard-canary", Some(65532)));
        let volumes: Vec<_> = spec.volumes.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(volumes, ["certs"]);
        assert_eq!(spec.volumes[0].attributes["secretProviderClass"], "c");
        let secrets: Vec<_> = served.secrets.iter().map(|it| (&*it.name, &*it.secret)).collect();
        assert_eq!(secrets, [("config", "s"), ("whole", "t")]);
    }

    #[test]
    fn the_files_of_a_secret_have_the_names_that_the_pod_gives_them() {
        let served = parse(|_| ()).unwrap();
        let data = data(&["cloud.conf", "other"]);
        let names = |volume: &SecretVolume| {
            let files = volume.parse_files(&data).unwrap().into_iter();
            files.map(|(path, content)| (path, content.to_vec())).collect::<Vec<_>>()
        };
        let file = |path: &str, content: &str| (PathBuf::from(path), content.as_bytes().to_vec());
        assert_eq!(names(&served.secrets[0]), [file("deep/azure.json", "cloud.conf")]);
        let whole = [file("cloud.conf", "cloud.conf"), file("other", "other")];
        assert_eq!(names(&served.secrets[1]), whole);
    }

    #[test]
    fn a_name_that_leads_out_of_its_place_is_refused_and_named() {
        let paths =
            ["/etc/cron.d/x", "../x", "a/../../x", "..", ".", "", "a//b", "a/", "./a", "a\0b"];
        for path in paths {
            let told = parse(|pod| {
                pod["spec"]["volumes"][2]["secret"]["items"][0]["path"] = json!(path);
            });
            let told = told.unwrap_err().to_string();
            assert!(told.starts_with("spec.volumes[2].secret.items[0].path: "), "{path}: {told}");
        }
        for name in ["../../../etc", "/etc", "a/b", "..", ".", ""] {
            for volume in [0, 2] {
                let told = parse(|pod| pod["spec"]["volumes"][volume]["name"] = json!(name));
                let told = told.unwrap_err().to_string();
                assert_eq!(told, format!("spec.volumes[{volume}].name: {name:?} is no plain name"));
            }
            let told = parse(|pod| pod["metadata"]["uid"] = json!(name)).unwrap_err().to_string();
            assert!(told.starts_with("metadata.uid: "), "{told}");
        }
        let served = parse(|_| ()).unwrap();
        for key in ["../x", "/x", ".."] {
            let told = served.secrets[1].parse_files(&data(&["fine", key])).unwrap_err();
            assert_eq!(told.to_string(), format!("data of Secret t: {key:?} is no plain name"));
        }
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let told = parse(|pod| {
            pod["metadata"]["uid"] = json!("a/b");
            pod["spec"]["volumes"][0]["name"] = json!("..");
            pod["spec"]["volumes"][2]["secret"]["items"][1]["path"] = json!("/x");
        });
        assert_eq!(told.unwrap_err().problems.len(), 3);
    }

    #[test]
    fn a_volume_that_nobody_serves_may_have_any_name() {
        assert!(parse(|pod| pod["spec"]["volumes"][1]["name"] = json!("a/b")).is_ok());
    }
}
