//! The sockets: when they appear, what they answer, when they go.

use std::os::unix::fs::PermissionsExt;

use lanyard_grpc::connect;
use lanyard_grpc::csi::{
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, NodeGetCapabilitiesRequest,
    NodeGetInfoRequest, ProbeRequest,
};
use lanyard_grpc::provider::VersionRequest;
use lanyard_grpc::provider::csi_driver_provider_client::CsiDriverProviderClient;
use lanyard_grpc::registration::registration_client::RegistrationClient;
use lanyard_grpc::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use lanyard_node::ServeError;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::fakes::{DRIVER, Node};

/// What the kubelet does with a socket in its registry.
async fn register(node: &Node, answer: Result<(), &str>) -> PluginInfo {
    let mut client = RegistrationClient::new(connect(&node.registration_socket()));
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    let status = RegistrationStatus {
        plugin_registered: answer.is_ok(),
        error: answer.err().unwrap_or_default().to_owned(),
    };
    client.notify_registration_status(status).await.unwrap();
    info
}

#[tokio::test]
async fn the_kubelet_meets_the_driver_only_when_it_can_serve() {
    let node = Node::start();
    node.until("the CSI socket is there", || node.csi_socket().exists()).await;
    let mut identity = node.identity();
    let ready = identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready;
    assert_eq!(ready, Some(false));
    assert!(!node.registration_socket().exists());
    node.classes.open();
    node.until("the registration socket is there", || node.registration_socket().exists()).await;
    let ready = identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready;
    assert_eq!(ready, Some(true));
    assert!(!node.readiness.is_ready(), "the kubelet did not come yet");
    let info = register(&node, Ok(())).await;
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER));
    assert_eq!(info.endpoint, node.csi_socket().display().to_string());
    assert_eq!(info.supported_versions, ["1.0.0"]);
    assert!(node.readiness.is_ready());
    for socket in [node.csi_socket(), node.registration_socket()] {
        let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{}", socket.display());
    }
    // What was ready once stays registered: it says itself what is amiss.
    node.classes.close("the API server went away");
    assert!(node.registration_socket().exists());
    node.end().await;
}

#[tokio::test]
async fn the_driver_says_who_it_is_and_claims_nothing_that_it_has_not() {
    let node = Node::ready().await;
    let mut identity = node.identity();
    let info = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), (DRIVER, "1.2.3"));
    let request = GetPluginCapabilitiesRequest {};
    let answer = identity.get_plugin_capabilities(request).await.unwrap().into_inner();
    assert_eq!(answer.capabilities, []);
    let mut kubelet = node.kubelet();
    let info = kubelet.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), ("node-1", 0));
    let request = NodeGetCapabilitiesRequest {};
    let answer = kubelet.node_get_capabilities(request).await.unwrap().into_inner();
    assert_eq!(format!("{:?}", answer.capabilities).matches("VolumeMountGroup").count(), 1);
    assert_eq!(answer.capabilities.len(), 1);
    node.end().await;
}

#[tokio::test]
async fn both_sockets_tell_their_health_and_other_drivers_find_the_provider() {
    let node = Node::start();
    node.until("the CSI socket is there", || node.csi_socket().exists()).await;
    let provider_socket = node.root.path().join("azure.sock");
    node.until("the provider socket is there", || provider_socket.exists()).await;
    let request = || HealthCheckRequest { service: String::new() };
    for (socket, open) in [(node.csi_socket(), false), (provider_socket.clone(), true)] {
        let mut client = HealthClient::new(connect(&socket));
        let status = client.check(request()).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::NotServing);
        if open {
            node.classes.open();
            node.until("the node is ready", || node.registration_socket().exists()).await;
            let status = client.check(request()).await.unwrap().into_inner().status();
            assert_eq!(status, ServingStatus::Serving);
        }
    }
    let mut client = CsiDriverProviderClient::new(connect(&provider_socket));
    let request = VersionRequest { version: "v1alpha1".to_owned() };
    let version = client.version(request).await.unwrap().into_inner();
    assert_eq!(version.version, "v1alpha1");
    node.end().await;
}

#[tokio::test]
async fn a_driver_that_the_kubelet_refuses_ends_so_that_it_is_started_again() {
    let mut node = Node::ready().await;
    register(&node, Err("plugin name is taken\nby another")).await;
    let error = node.ended().await.unwrap_err();
    assert!(matches!(error, ServeError::Refused(_)), "{error:?}");
    assert!(!error.hint().is_empty());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.ends_with("plugin name is takenby another"), "{cause}");
    assert!(!node.readiness.is_ready());
    assert!(!node.registration_socket().exists() && !node.csi_socket().exists());
}

#[tokio::test]
async fn sockets_come_back_when_the_kubelets_directory_is_made_again() {
    let node = Node::ready().await;
    register(&node, Ok(())).await;
    let registry = node.root.path().join("plugins_registry");
    std::fs::remove_dir_all(&registry).unwrap();
    node.until("the loss is noticed", || !node.readiness.is_ready()).await;
    std::fs::create_dir(&registry).unwrap();
    node.until("the socket is back", || node.registration_socket().exists()).await;
    register(&node, Ok(())).await;
    assert!(node.readiness.is_ready());
    std::fs::remove_file(node.csi_socket()).unwrap();
    node.until("the CSI socket is back", || node.csi_socket().exists()).await;
    assert!(node.kubelet().node_get_info(NodeGetInfoRequest {}).await.is_ok());
    node.end().await;
}

#[tokio::test]
async fn a_call_in_flight_is_answered_before_the_end_and_nobody_new_comes_in() {
    let mut node = Node::ready().await;
    node.vault.gate.forget_permits(1000);
    let target = node.target("a");
    let (mut kubelet, request) = (node.kubelet(), crate::fakes::request(&target));
    let call = tokio::spawn(async move { kubelet.node_publish_volume(request).await });
    node.until("the vault is asked", || *node.vault.waiting.lock() == 1).await;
    node.begin_end();
    for socket in [node.registration_socket(), node.csi_socket()] {
        node.until("the sockets are gone", || !socket.exists()).await;
    }
    assert!(!call.is_finished());
    let late = node.kubelet().node_get_info(NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(late.code(), Code::Unavailable);
    *node.vault.refusal.lock() = Some(crate::fakes::forbidden());
    node.vault.gate.add_permits(1);
    let status = call.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    node.ended().await.unwrap();
}
