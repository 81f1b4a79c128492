//! Tests of the sockets: creation, responses and removal.

use std::os::unix::fs::PermissionsExt;

use lanyard_clock::ErrorHint as _;
use lanyard_grpc::channel_to_socket;
use lanyard_grpc::csi::{
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, NodeGetCapabilitiesRequest,
    NodeGetInfoRequest, ProbeRequest,
};
use lanyard_grpc::provider::VersionRequest;
use lanyard_grpc::provider::csi_driver_provider_client::CsiDriverProviderClient;
use lanyard_grpc::registration::registration_client::RegistrationClient;
use lanyard_grpc::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use lanyard_node::NodeServeError;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::fakes::{DRIVER, NodeProcessFixture};

/// Registers the driver as the kubelet does when it finds a socket in its registry.
async fn register(node: &NodeProcessFixture, answer: Result<(), &str>) -> PluginInfo {
    let mut client = RegistrationClient::new(channel_to_socket(&node.registration_socket()));
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    let status = RegistrationStatus {
        plugin_registered: answer.is_ok(),
        error: answer.err().unwrap_or_default().to_owned(),
    };
    client.notify_registration_status(status).await.unwrap();
    info
}

#[tokio::test]
async fn driver_is_registered_only_once_it_is_ready() {
    let node = NodeProcessFixture::start();
    node.wait_until("the CSI socket exists", || node.csi_socket().exists()).await;
    let mut identity = node.identity_client();
    let ready = identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready;
    assert_eq!(ready, Some(false));
    assert!(!node.registration_socket().exists());
    node.classes_gate.open();
    node.wait_until("the registration socket exists", || node.registration_socket().exists()).await;
    let ready = identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready;
    assert_eq!(ready, Some(true));
    assert!(!node.readiness.is_ready(), "the kubelet has not registered the driver");
    let info = register(&node, Ok(())).await;
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER));
    assert_eq!(info.endpoint, node.csi_socket().display().to_string());
    assert_eq!(info.supported_versions, ["1.0.0"]);
    assert!(node.readiness.is_ready());
    for socket in [node.csi_socket(), node.registration_socket()] {
        let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{}", socket.display());
    }
    // A driver that was ready once stays registered and reports its problems itself.
    node.classes_gate.close("the API server went away");
    assert!(node.registration_socket().exists());
    node.shut_down().await;
}

#[tokio::test]
async fn driver_reports_its_name_and_only_supported_capabilities() {
    let node = NodeProcessFixture::start_registered().await;
    let mut identity = node.identity_client();
    let info = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), (DRIVER, "1.2.3"));
    let request = GetPluginCapabilitiesRequest {};
    let answer = identity.get_plugin_capabilities(request).await.unwrap().into_inner();
    assert_eq!(answer.capabilities, []);
    let mut kubelet = node.node_client();
    let info = kubelet.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), ("node-1", 0));
    let request = NodeGetCapabilitiesRequest {};
    let answer = kubelet.node_get_capabilities(request).await.unwrap().into_inner();
    assert_eq!(format!("{:?}", answer.capabilities).matches("VolumeMountGroup").count(), 1);
    assert_eq!(answer.capabilities.len(), 1);
    node.shut_down().await;
}

#[tokio::test]
async fn both_sockets_serve_health_and_one_the_provider_protocol() {
    let node = NodeProcessFixture::start();
    node.wait_until("the CSI socket exists", || node.csi_socket().exists()).await;
    let provider_socket = node.root.path().join("azure.sock");
    node.wait_until("the provider socket exists", || provider_socket.exists()).await;
    let request = || HealthCheckRequest { service: String::new() };
    for (socket, open) in [(node.csi_socket(), false), (provider_socket.clone(), true)] {
        let mut client = HealthClient::new(channel_to_socket(&socket));
        let status = client.check(request()).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::NotServing);
        if open {
            node.classes_gate.open();
            node.wait_until("the node is ready", || node.registration_socket().exists()).await;
            let status = client.check(request()).await.unwrap().into_inner().status();
            assert_eq!(status, ServingStatus::Serving);
        }
    }
    let mut client = CsiDriverProviderClient::new(channel_to_socket(&provider_socket));
    let request = VersionRequest { version: "v1alpha1".to_owned() };
    let version = client.version(request).await.unwrap().into_inner();
    assert_eq!(version.version, "v1alpha1");
    node.shut_down().await;
}

#[tokio::test]
async fn server_exits_when_the_kubelet_rejects_the_registration() {
    let mut node = NodeProcessFixture::start_registered().await;
    register(&node, Err("plugin name is taken\nby another")).await;
    let error = node.wait_for_exit().await.unwrap_err();
    assert!(matches!(error, NodeServeError::RegistrationRejected(_)), "{error:?}");
    assert!(error.hint().is_some());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.ends_with("plugin name is takenby another"), "{cause}");
    assert!(!node.readiness.is_ready());
    assert!(!node.registration_socket().exists() && !node.csi_socket().exists());
}

#[tokio::test]
async fn sockets_are_recreated_after_the_kubelet_directory_is_removed() {
    let node = NodeProcessFixture::start_registered().await;
    register(&node, Ok(())).await;
    let registry = node.root.path().join("plugins_registry");
    std::fs::remove_dir_all(&registry).unwrap();
    node.wait_until("the loss is noticed", || !node.readiness.is_ready()).await;
    std::fs::create_dir(&registry).unwrap();
    node.wait_until("the socket is back", || node.registration_socket().exists()).await;
    register(&node, Ok(())).await;
    assert!(node.readiness.is_ready());
    std::fs::remove_file(node.csi_socket()).unwrap();
    node.wait_until("the CSI socket is back", || node.csi_socket().exists()).await;
    assert!(node.node_client().node_get_info(NodeGetInfoRequest {}).await.is_ok());
    node.shut_down().await;
}

#[tokio::test]
async fn shutdown_answers_in_flight_calls_and_accepts_no_new_ones() {
    let mut node = NodeProcessFixture::start_registered().await;
    node.vault.gate.forget_permits(1000);
    let target = node.target("a");
    let (mut kubelet, request) = (node.node_client(), crate::fakes::publish_request(&target));
    let call = tokio::spawn(async move { kubelet.node_publish_volume(request).await });
    node.wait_until("the vault receives the request", || *node.vault.waiting_requests.lock() == 1)
        .await;
    node.begin_shutdown();
    for socket in [node.registration_socket(), node.csi_socket()] {
        node.wait_until("the sockets are gone", || !socket.exists()).await;
    }
    assert!(!call.is_finished());
    let late = node.node_client().node_get_info(NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(late.code(), Code::Unavailable);
    *node.vault.error.lock() = Some(crate::fakes::forbidden_error());
    node.vault.gate.add_permits(1);
    let status = call.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    node.wait_for_exit().await.unwrap();
}
