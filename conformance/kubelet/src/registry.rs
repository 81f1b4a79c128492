//! Registration of drivers through sockets in the kubelet's plugin directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lanyard_clock::Clock;
use lanyard_grpc::registration::PluginInfo;

use crate::directory::{KubeletDirectoryError, list_names};
use crate::driver_calls;
use crate::event::KubeletEvent;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredDriver {
    /// The socket of its CSI services.
    pub endpoint: PathBuf,
    /// The node id that the driver returned, as in the CSINode object.
    pub node_id: String,
    /// The file name of its registration socket.
    pub socket: String,
}

/// The registered drivers and the registration sockets of the last scan.
#[derive(Debug, Clone, Default)]
pub(crate) struct DriverRegistry {
    drivers: BTreeMap<String, RegisteredDriver>,
    /// Sockets by file name. The inode distinguishes a recreated socket from the old one, so that its plugin is
    /// registered again.
    sockets: BTreeMap<String, RegistrationSocket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RegistrationSocket {
    inode: u64,
    is_accepted: bool,
}

impl DriverRegistry {
    pub(crate) fn driver(&self, name: &str) -> Option<&RegisteredDriver> {
        self.drivers.get(name)
    }

    /// Deregisters drivers whose socket is gone, and registers those with a new socket or whose last
    /// registration failed.
    pub(crate) async fn scan_sockets(
        &mut self,
        clock: &dyn Clock,
        directory: &Path,
    ) -> Result<Vec<KubeletEvent>, KubeletDirectoryError> {
        let mut here = BTreeMap::new();
        for name in list_names(directory)? {
            if let Some(inode) = socket_inode(&directory.join(&name)) {
                here.insert(name, inode);
            }
        }
        let mut events = Vec::new();
        self.sockets.retain(|name, socket| here.get(name) == Some(&socket.inode));
        let sockets = &self.sockets;
        self.drivers.retain(|driver, registered| {
            let is_here = sockets.contains_key(&registered.socket);
            if !is_here {
                events.push(KubeletEvent::Deregistered { driver: driver.clone() });
            }
            is_here
        });
        for (name, inode) in here {
            if self.sockets.get(&name).is_some_and(|socket| socket.is_accepted) {
                continue;
            }
            let outcome = self.register_driver(clock, directory, &name).await;
            self.sockets
                .insert(name.clone(), RegistrationSocket { inode, is_accepted: outcome.is_ok() });
            events.push(match outcome {
                Ok((driver, node_id)) => KubeletEvent::Registered { driver, node_id },
                Err(message) => KubeletEvent::RegistrationFailed { socket: name, message },
            });
        }
        Ok(events)
    }

    async fn register_driver(
        &mut self,
        clock: &dyn Clock,
        directory: &Path,
        socket: &str,
    ) -> Result<(String, String), String> {
        let path = directory.join(socket);
        let info = driver_calls::fetch_plugin_info(clock, &path)
            .await
            .map_err(|it| driver_calls::describe_status(&it))?;
        let outcome = match validate_plugin_info(&info) {
            Ok(()) => driver_calls::fetch_node_id(clock, Path::new(&info.endpoint)).await.map_err(
                |status| format!("NodeGetInfo: {}", driver_calls::describe_status(&status)),
            ),
            Err(problem) => Err(problem),
        };
        let problem = outcome.as_ref().err().map(String::as_str);
        driver_calls::notify_registration(clock, &path, problem).await.map_err(|it| {
            format!("NotifyRegistrationStatus: {}", driver_calls::describe_status(&it))
        })?;
        let node_id = outcome?;
        let driver = info.name;
        let endpoint = info.endpoint.into();
        let registered =
            RegisteredDriver { endpoint, node_id: node_id.clone(), socket: socket.to_owned() };
        self.drivers.insert(driver.clone(), registered);
        Ok((driver, node_id))
    }
}

/// Checks that the kubelet can use the plugin.
fn validate_plugin_info(info: &PluginInfo) -> Result<(), String> {
    if info.r#type != "CSIPlugin" {
        return Err(format!("plugin type {:?} is not CSIPlugin", info.r#type));
    }
    if info.name.is_empty() {
        return Err("the plugin has no name".to_owned());
    }
    if !Path::new(&info.endpoint).is_absolute() {
        return Err(format!("the endpoint {:?} is not an absolute path", info.endpoint));
    }
    let is_first =
        |version: &String| version.trim_start_matches('v').split('.').next() == Some("1");
    if !info.supported_versions.iter().any(is_first) {
        return Err(format!("none of the versions {:?} is 1.x", info.supported_versions));
    }
    Ok(())
}

/// The inode of a registration socket. Like the kubelet, this ignores names that begin with a dot.
fn socket_inode(path: &Path) -> Option<u64> {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let stat = rustix::fs::lstat(path).ok().filter(|_| !is_hidden)?;
    let is_socket =
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket;
    is_socket.then_some(stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> PluginInfo {
        PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: "driver".to_owned(),
            endpoint: "/csi.sock".to_owned(),
            supported_versions: vec!["1.0.0".to_owned()],
        }
    }

    #[test]
    fn only_csi_v1_plugins_with_absolute_endpoint_are_accepted() {
        assert_eq!(validate_plugin_info(&info()), Ok(()));
        for wrong in [
            PluginInfo { r#type: "DevicePlugin".to_owned(), ..info() },
            PluginInfo { name: String::new(), ..info() },
            PluginInfo { endpoint: "csi.sock".to_owned(), ..info() },
            PluginInfo { supported_versions: vec!["0.3.0".to_owned()], ..info() },
            PluginInfo { supported_versions: Vec::new(), ..info() },
        ] {
            assert!(validate_plugin_info(&wrong).is_err(), "{wrong:?}");
        }
    }
}
