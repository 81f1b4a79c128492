//! How the stand-in starts the container of a canary: what it is told, and where on this machine its
//! mounts are. There is no container around it, so paths are translated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Volume};
use lanyard_canary::{CanarySettings, CredentialPlace, ProbeSettings};
use lanyard_kubelet::{InlineVolume, PodSpec};

use super::Launch;
use super::node_plugin::DRIVER;

/// The container of a pod in which a canary stands for a component.
pub(super) fn canary_of(pod: &Pod) -> Option<&Container> {
    let containers = &pod.spec.as_ref()?.containers;
    let is_canary = |container: &&Container| {
        container.args.as_ref().and_then(|args| args.first()).is_some_and(|it| it == "canary")
    };
    containers.iter().find(is_canary)
}

/// What the container is started with.
pub(super) fn launch_of(pod: &Pod, container: &Container) -> Launch {
    let variables = container.env.iter().flatten();
    let variables = variables.filter_map(|it| Some((it.name.clone(), value_of(pod, it)?)));
    Launch { arguments: container.args.clone().unwrap_or_default(), variables: variables.collect() }
}

fn value_of(pod: &Pod, variable: &EnvVar) -> Option<String> {
    if let Some(value) = &variable.value {
        return Some(value.clone());
    }
    match variable.value_from.as_ref()?.field_ref.as_ref()?.field_path.as_str() {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        _ => None,
    }
}

/// The pod as the kubelet serves its volumes.
pub(super) fn pod_spec(pod: &Pod) -> PodSpec {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    let mut served =
        PodSpec::new(text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
    if let Some(account) = spec.and_then(|spec| spec.service_account_name.clone()) {
        served = served.with_service_account(account);
    }
    let group = spec.and_then(|spec| spec.security_context.as_ref()?.fs_group);
    served.fs_group = group.and_then(|group| u32::try_from(group).ok());
    for volume in volumes(pod) {
        let Some(csi) = volume.csi.as_ref().filter(|csi| csi.driver == DRIVER) else { continue };
        let attributes = csi.volume_attributes.iter().flatten();
        let inline = attributes
            .fold(InlineVolume::new(&volume.name, DRIVER), |inline, (key, value)| {
                inline.with_attribute(key, value)
            });
        served = served.with_volume(inline);
    }
    served
}

/// The volumes of a pod.
pub(super) fn volumes(pod: &Pod) -> &[Volume] {
    pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
}

/// The Secrets that a container finds as files: the volume, and the name of the file by key.
pub(super) fn secret_files(volume: &Volume) -> Option<(&str, BTreeMap<String, String>)> {
    let secret = volume.secret.as_ref()?;
    let items = secret.items.iter().flatten();
    let names = items.map(|item| (item.key.clone(), item.path.clone())).collect();
    Some((secret.secret_name.as_deref()?, names))
}

/// Where the mounts of a container are on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mounts(Vec<(PathBuf, PathBuf)>);

impl Mounts {
    /// The mounts of a container, given where its pod's volumes are.
    pub(super) fn of(container: &Container, places: &BTreeMap<String, PathBuf>) -> Self {
        let mounts = container.volume_mounts.iter().flatten();
        let mut mounts: Vec<_> = mounts
            .filter_map(|it| Some((PathBuf::from(&it.mount_path), places.get(&it.name)?.clone())))
            .collect();
        // Of two mounts of which one is in the other, the inner one has the path.
        mounts.sort_by_key(|(inside, _)| std::cmp::Reverse(inside.components().count()));
        Self(mounts)
    }

    /// A path of the container on this machine. What is in no mount stays as it is.
    pub(super) fn translate(&self, inside: &Path) -> PathBuf {
        let place = self.0.iter().find_map(|(mount, place)| {
            inside.strip_prefix(mount).ok().map(|rest| place.join(rest))
        });
        place.unwrap_or_else(|| inside.to_owned())
    }

    /// The settings of a canary with all paths translated.
    ///
    /// The place of the credential is asked as the canary would ask it when it starts. One that
    /// gives no path stays, so that the canary says why.
    pub(super) fn translate_settings(&self, mut settings: CanarySettings) -> CanarySettings {
        if let CredentialPlace::CloudConfig(path) = &mut settings.place {
            *path = self.translate(path);
        }
        if let Ok(path) = settings.place.load_path() {
            settings.place = CredentialPlace::File(self.translate(&path));
        }
        for probe in &mut settings.probes {
            if let ProbeSettings::Encryption { credential_file: Some(path), .. } = probe {
                *path = self.translate(path);
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "disk-1", "namespace": "clusters-harbour", "uid": "u"},
            "spec": {
                "serviceAccountName": "lanyard-canary",
                "securityContext": {"fsGroup": 65532},
                "containers": [
                    {"name": "sidecar", "args": ["kms"]},
                    {
                        "name": "csi-driver",
                        "args": ["canary", "--component=disk"],
                        "env": [
                            {"name": "PLAIN", "value": "x"},
                            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        ],
                        "volumeMounts": [
                            {"name": "certs", "mountPath": "/mnt/certs"},
                            {"name": "inner", "mountPath": "/mnt/certs/inner"},
                            {"name": "absent", "mountPath": "/opt"},
                        ],
                    },
                ],
                "volumes": [
                    {"name": "certs", "csi": {"driver": DRIVER, "volumeAttributes": {"secretProviderClass": "c"}}},
                    {"name": "other", "csi": {"driver": "another.example.com"}},
                    {"name": "config", "secret": {"secretName": "s", "items": [{"key": "cloud.conf", "path": "azure.json"}]}},
                ],
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_container_with_the_canary_is_started_with_its_arguments_and_variables() {
        let pod = pod();
        let launch = launch_of(&pod, canary_of(&pod).unwrap());
        assert_eq!(launch.arguments, ["canary", "--component=disk"]);
        let variables: Vec<_> = launch.variables.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(variables, ["PLAIN=x", "POD_NAME=disk-1"]);
    }

    #[test]
    fn only_volumes_of_our_driver_are_served() {
        let served = pod_spec(&pod());
        assert_eq!(
            (served.service_account.as_str(), served.fs_group),
            ("lanyard-canary", Some(65532))
        );
        let volumes: Vec<_> = served.volumes.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(volumes, ["certs"]);
        assert_eq!(served.volumes[0].attributes["secretProviderClass"], "c");
    }

    #[test]
    fn the_files_of_a_secret_have_the_names_that_the_pod_gives_them() {
        let pod = pod();
        let (secret, names) = secret_files(&volumes(&pod)[2]).unwrap();
        assert_eq!((secret, names["cloud.conf"].as_str()), ("s", "azure.json"));
    }

    #[test]
    fn paths_are_translated_by_the_innermost_mount() {
        let pod = pod();
        let place = |name: &str| (name.to_owned(), PathBuf::from("/k").join(name));
        let places = BTreeMap::from(["certs", "inner"].map(place));
        let mounts = Mounts::of(canary_of(&pod).unwrap(), &places);
        for (inside, outside) in [
            ("/mnt/certs/harbour-disk", "/k/certs/harbour-disk"),
            ("/mnt/certs/inner/x", "/k/inner/x"),
            ("/mnt/certs2/x", "/mnt/certs2/x"),
            ("/opt/x", "/opt/x"),
        ] {
            assert_eq!(mounts.translate(Path::new(inside)), Path::new(outside), "{inside}");
        }
    }
}
