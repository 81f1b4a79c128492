//! Tests of volumes through the sockets.

use std::time::Duration;

use tonic::Code;

use crate::fakes::{MARKER, NodeProcessFixture, TOKENS, forbidden_error, publish_request};

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn volume_is_published_unpublished_and_counted() {
    let node = NodeProcessFixture::start_registered().await;
    let target = node.target("a");
    node.publish(&target).await.unwrap();
    assert_eq!(std::fs::read_to_string(target.join("credential")).unwrap(), MARKER);
    node.publish(&target).await.unwrap();
    let line = "lanyard_node_volumes{namespace=\"tenant\",class=\"disk\"} 1";
    assert!(node.page.render().lines().any(|it| it == line));
    node.unpublish(&target).await.unwrap();
    node.unpublish(&target).await.unwrap();
    assert!(!target.exists());
    let page = node.page.render();
    for line in [
        "node_publish_total{provider=\"azure\",os_type=\"linux\"} 2",
        "node_unpublish_total{os_type=\"linux\"} 2",
        "grpc_request_count{provider=\"azure\",os_type=\"linux\",grpc_method=\"/csi.v1.Node/NodePublishVolume\",grpc_code=\"OK\"} 2",
    ] {
        assert!(page.lines().any(|it| it == line), "{line}\n{page}");
    }
    assert!(!page.contains("namespace=\"tenant\""), "{page}");
    node.shut_down().await;
}

#[tokio::test]
async fn provider_error_status_has_code_cause_and_hint() {
    let node = NodeProcessFixture::start_registered().await;
    *node.vault.error.lock() = Some(forbidden_error());
    let status = node.publish(&node.target("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    for part in [
        "VaultForbidden: could not publish the volume of pod tenant/controller-0",
        "could not read `credential`: HTTP 403",
        "hint: assign `Key Vault Secrets User`",
        "it does not recover by itself",
    ] {
        assert!(status.message().contains(part), "{part} is not in {}", status.message());
    }
    let page = node.page.render();
    let line = "node_publish_error_total{provider=\"azure\",error_type=\"VaultForbidden\",os_type=\"linux\"} 1";
    assert!(page.lines().any(|it| it == line), "{page}");
    node.shut_down().await;
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn invalid_republish_of_a_mounted_volume_is_not_a_final_error() {
    let node = NodeProcessFixture::start_registered().await;
    let target = node.target("a");
    node.publish(&target).await.unwrap();
    let mut invalid = publish_request(&target);
    invalid.secrets.insert(TOKENS.to_owned(), "{".to_owned());
    let status = node.node_client().node_publish_volume(invalid).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    node.unpublish(&target).await.unwrap();
    let mut invalid = publish_request(&target);
    invalid.secrets.insert(TOKENS.to_owned(), "{".to_owned());
    let status = node.node_client().node_publish_volume(invalid).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    node.shut_down().await;
}

#[tokio::test]
async fn twenty_volumes_are_published_at_once() {
    let node = NodeProcessFixture::start_registered().await;
    node.vault.gate.forget_permits(1000);
    *node.vault.error.lock() = Some(forbidden_error());
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let (mut kubelet, target) = (node.node_client(), node.target(&number.to_string()));
            tokio::spawn(async move { kubelet.node_publish_volume(publish_request(&target)).await })
        })
        .collect();
    node.wait_until("all of them wait for the vault", || *node.vault.waiting_requests.lock() == 20)
        .await;
    node.vault.gate.add_permits(20);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::PermissionDenied);
    }
    node.shut_down().await;
}

#[tokio::test]
async fn a_callers_deadline_is_kept() {
    let node = NodeProcessFixture::start_registered().await;
    node.vault.gate.forget_permits(1000);
    let mut call = tonic::Request::new(publish_request(&node.target("a")));
    // The client sends the deadline as `grpc-timeout`, and the server enforces it in real time.
    call.metadata_mut().insert("grpc-timeout", "20m".parse().unwrap());
    let status = node.node_client().node_publish_volume(call).await.unwrap_err();
    let ended = [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code());
    assert!(ended, "{status:?}");
    *node.vault.error.lock() = Some(forbidden_error());
    node.vault.gate.add_permits(1);
    node.shut_down().await;
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_all_of_its_problems() {
    let node = NodeProcessFixture::start_registered().await;
    let mut invalid = publish_request(std::path::Path::new("/etc"));
    invalid.readonly = false;
    invalid.volume_context.remove("secretProviderClass");
    let status = node.node_client().node_publish_volume(invalid).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for part in ["`secretProviderClass`", "`target_path`", "it does not recover by itself"] {
        assert!(status.message().contains(part), "{part} is not in {}", status.message());
    }
    assert!(status.message().contains("`readonly` is not true"));
    assert!(status.message().contains("hint: set `readOnly: true`"));
    node.clock.advance(Duration::from_secs(1));
    node.shut_down().await;
}
