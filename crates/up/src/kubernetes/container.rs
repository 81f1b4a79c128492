//! How the stand-in starts the container of a canary: what it is told, and where on this machine its
//! mounts are. There is no container around it, so paths are translated, and one that is in no
//! mount is refused: it would be a file of this machine.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use lanyard_canary::{CanarySettings, CredentialPlace, ProbeSettings};

use super::Launch;

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

    /// A path of the container on this machine.
    ///
    /// # Errors
    ///
    /// Where it is in no mount.
    pub(super) fn translate(&self, inside: &Path) -> Result<PathBuf, OutsideMounts> {
        // One that goes up leads out of the mount that it begins with.
        let is_plain = inside.components().all(|it| it != Component::ParentDir);
        let mut mounts = self.0.iter().filter(|_| is_plain);
        let place = mounts.find_map(|(mount, place)| {
            inside.strip_prefix(mount).ok().map(|rest| place.join(rest))
        });
        place.ok_or_else(|| OutsideMounts { path: inside.to_owned() })
    }

    /// The settings of a canary with all paths translated.
    ///
    /// The place of the credential is asked as the canary would ask it when it starts. One that
    /// gives no path stays, so that the canary says why.
    ///
    /// # Errors
    ///
    /// Where a path is in no mount.
    pub(super) fn translate_settings(
        &self,
        mut settings: CanarySettings,
    ) -> Result<CanarySettings, OutsideMounts> {
        if let CredentialPlace::CloudConfig(path) = &mut settings.place {
            *path = self.translate(path)?;
        }
        if let Ok(path) = settings.place.load_path() {
            settings.place = CredentialPlace::File(self.translate(&path)?);
        }
        for probe in &mut settings.probes {
            if let ProbeSettings::Encryption { credential_file: Some(path), .. } = probe {
                *path = self.translate(path)?;
            }
        }
        Ok(settings)
    }
}

/// A path of a container that is in no mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is in no volume that is mounted in the container", path.display())]
pub(super) struct OutsideMounts {
    path: PathBuf,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "disk-1", "namespace": "clusters-harbour", "uid": "u"},
            "spec": {
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

    fn mounts() -> Mounts {
        let pod = pod();
        let place = |name: &str| (name.to_owned(), PathBuf::from("/k").join(name));
        let places = BTreeMap::from(["certs", "inner"].map(place));
        Mounts::of(canary_of(&pod).unwrap(), &places)
    }

    #[test]
    fn paths_are_translated_by_the_innermost_mount() {
        for (inside, outside) in [
            ("/mnt/certs/harbour-disk", "/k/certs/harbour-disk"),
            ("/mnt/certs/inner/x", "/k/inner/x"),
        ] {
            let translated = mounts().translate(Path::new(inside));
            assert_eq!(translated.as_deref(), Ok(Path::new(outside)), "{inside}");
        }
    }

    #[test]
    fn what_is_in_no_mount_is_refused() {
        // The last but one is mounted in the container, and is nowhere on this machine.
        for inside in
            ["/etc/shadow", "/mnt/certs2/x", "/mnt/certs/../../etc/shadow", "x", "/opt/x", ""]
        {
            let refused = OutsideMounts { path: inside.into() };
            assert_eq!(mounts().translate(Path::new(inside)), Err(refused), "{inside}");
        }
    }
}
