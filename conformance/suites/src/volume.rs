//! Volumes of pods that nobody runs: the calls that a kubelet makes for them, and what then lies in
//! their directories.
//!
//! These are the calls for judging who answers. Cadence, back-off and clean-up of the kubelet
//! are not theirs; suites that depend on them run a real one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_grpc::csi;
use lanyard_grpc::csi::node_client::NodeClient;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};
use thiserror::Error;
use tonic::{Request, Status};

use crate::peers::NODE;

/// The kubelet's own deadline for a call.
const DEADLINE: Duration = Duration::from_mins(2);

/// A call was not answered with OK.
#[derive(Debug, Error)]
#[error("{call} was answered {}: {}", .status.code(), .status.message())]
pub(crate) struct CallError {
    call: &'static str,
    pub(crate) status: Box<Status>,
}

/// A volume of a pod.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) class: String,
    /// What `nodePublishSecretRef` names.
    pub(crate) secrets: BTreeMap<String, String>,
    /// ServiceAccount tokens by audience, as the kubelet spells them.
    pub(crate) tokens: Option<Value>,
    pods: PathBuf,
}

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSeen {
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
}

impl Volume {
    /// A volume below the kubelet's directory, for a pod and a class of the same namespace.
    pub(crate) fn new(kubelet: &Path, namespace: &str, pod: &str, class: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: uuid::Uuid::new_v4().to_string(),
            class: class.to_owned(),
            secrets: BTreeMap::new(),
            tokens: None,
            pods: kubelet.join("pods"),
        }
    }

    /// Where the volume is mounted.
    pub(crate) fn target(&self) -> PathBuf {
        self.pods
            .join(&self.uid)
            .join("volumes")
            .join("kubernetes.io~csi")
            .join("secrets")
            .join("mount")
    }

    /// The id: a digest of pod and volume, in the kubelet's case.
    pub(crate) fn id(&self) -> String {
        format!("csi-{}", self.uid.replace('-', ""))
    }

    /// The name of its `SecretProviderClassPodStatus`.
    pub(crate) fn status_name(&self) -> String {
        format!("{}-{}-{}", self.pod, self.namespace, self.class)
    }

    /// Its pod, on the node that nobody runs.
    pub(crate) fn pod_object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.pod, "namespace": self.namespace },
            "spec": {
                "nodeName": NODE,
                "containers": [{ "name": "nobody", "image": "none" }],
                "volumes": [{
                    "name": "secrets",
                    "csi": {
                        "driver": "secrets-store.csi.k8s.io",
                        "readOnly": true,
                        "volumeAttributes": { "secretProviderClass": self.class },
                    },
                }],
            },
        })
    }

    fn publish_request(&self) -> csi::NodePublishVolumeRequest {
        let mut context = BTreeMap::from([
            ("secretProviderClass".to_owned(), self.class.clone()),
            ("csi.storage.k8s.io/pod.name".to_owned(), self.pod.clone()),
            ("csi.storage.k8s.io/pod.namespace".to_owned(), self.namespace.clone()),
            ("csi.storage.k8s.io/pod.uid".to_owned(), self.uid.clone()),
            ("csi.storage.k8s.io/serviceAccount.name".to_owned(), "default".to_owned()),
            ("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned()),
        ]);
        if let Some(tokens) = &self.tokens {
            let key = "csi.storage.k8s.io/serviceAccount.tokens".to_owned();
            context.insert(key, tokens.to_string());
        }
        let mut request = csi::NodePublishVolumeRequest::default();
        request.volume_id = self.id();
        request.target_path = self.target().display().to_string();
        request.readonly = true;
        request.secrets = self.secrets.clone();
        request.volume_context = context;
        request.volume_capability = Some(capability());
        request
    }

    /// What a pod sees: every file by its path, with the permissions and the bytes behind the
    /// links.
    pub(crate) fn files(&self) -> std::io::Result<BTreeMap<String, FileSeen>> {
        let mut files = BTreeMap::new();
        collect(&self.target(), "", &mut files)?;
        Ok(files)
    }

    /// Takes away what a driver left behind.
    pub(crate) fn clear(&self) {
        // Most often nothing is there any more, and a stack of mounts is taken down whole.
        while unmount(self.target(), UnmountFlags::DETACH).is_ok() {}
        drop(fs::remove_dir_all(self.pods.join(&self.uid)));
    }
}

fn capability() -> csi::VolumeCapability {
    let mount = csi::volume_capability::MountVolume::default();
    csi::VolumeCapability {
        access_mode: Some(csi::volume_capability::AccessMode {
            mode: csi::volume_capability::access_mode::Mode::SingleNodeWriter.into(),
        }),
        access_type: Some(csi::volume_capability::AccessType::Mount(mount)),
    }
}

/// Entries that begin with two dots are the layout's own.
fn collect(
    directory: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, FileSeen>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("..") {
            continue;
        }
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        let metadata = fs::metadata(&path)?;
        if metadata.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            let (mode, content) = (metadata.permissions().mode() & 0o7777, fs::read(&path)?);
            files.insert(name, FileSeen { mode, content });
        }
    }
    Ok(())
}

/// A CSI driver at its socket.
#[derive(Debug, Clone)]
pub(crate) struct NodePlugin(PathBuf);

impl NodePlugin {
    pub(crate) fn at(socket: &Path) -> Self {
        Self(socket.to_path_buf())
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.0
    }

    /// The kubelet makes every call on a connection of its own.
    fn client(&self) -> NodeClient<tonic::transport::Channel> {
        NodeClient::new(lanyard_grpc::connect(&self.0))
    }

    /// Whether the driver answers.
    pub(crate) async fn answers(&self) -> bool {
        self.0.exists()
            && self.client().node_get_info(csi::NodeGetInfoRequest::default()).await.is_ok()
    }

    /// Publishes a volume: asks for the capabilities first, as the kubelet does.
    pub(crate) async fn publish(&self, volume: &Volume) -> Result<(), CallError> {
        let asked = csi::NodeGetCapabilitiesRequest::default();
        self.client().node_get_capabilities(asked).await.map_err(error("NodeGetCapabilities"))?;
        if let Some(parent) = volume.target().parent() {
            // A driver that finds no directory says so better than we could.
            fs::create_dir_all(parent).unwrap_or_default();
        }
        let mut request = Request::new(volume.publish_request());
        request.set_timeout(DEADLINE);
        let answer = self.client().node_publish_volume(request).await;
        answer.map(drop).map_err(error("NodePublishVolume"))
    }

    /// Unpublishes a volume.
    pub(crate) async fn unpublish(&self, volume: &Volume) -> Result<(), CallError> {
        let (volume_id, target_path) = (volume.id(), volume.target().display().to_string());
        let mut request = Request::new(csi::NodeUnpublishVolumeRequest { volume_id, target_path });
        request.set_timeout(DEADLINE);
        let answer = self.client().node_unpublish_volume(request).await;
        answer.map(drop).map_err(error("NodeUnpublishVolume"))
    }
}

fn error(call: &'static str) -> impl FnOnce(Status) -> CallError {
    move |status| CallError { call, status: Box::new(status) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_volume_is_seen_through_its_links_and_without_their_machinery() {
        let kubelet = tempfile::tempdir().expect("a directory");
        let volume = Volume::new(kubelet.path(), "default", "web", "secrets");
        let target = volume.target();
        fs::create_dir_all(target.join("..1").join("tls")).expect("it is made");
        fs::write(target.join("..1/tls/key"), "k").expect("it is written");
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(target.join("..1/tls/key"), mode).expect("it is ours");
        symlink("..1", target.join("..data")).expect("it is linked");
        symlink("..data/tls", target.join("tls")).expect("it is linked");
        let seen = volume.files().expect("it can be read");
        let key = FileSeen { mode: 0o640, content: b"k".to_vec() };
        assert_eq!(seen, BTreeMap::from([("tls/key".to_owned(), key)]));
        volume.clear();
        assert!(!target.exists());
    }

    #[tokio::test]
    async fn a_socket_without_a_driver_does_not_answer() {
        assert!(!NodePlugin::at(Path::new("/nowhere/csi.sock")).answers().await);
    }
}
