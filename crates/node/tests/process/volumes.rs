//! Volumes through the sockets.

use std::time::Duration;

use tonic::Code;

use crate::fakes::{MARKER, Node, TOKENS, forbidden, request};

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_volume_comes_and_goes_at_the_kubelets_word_and_is_counted() {
    let node = Node::ready().await;
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
    node.end().await;
}

#[tokio::test]
async fn a_refusal_says_what_was_tried_what_came_back_and_what_to_do() {
    let node = Node::ready().await;
    *node.vault.refusal.lock() = Some(forbidden());
    let status = node.publish(&node.target("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    for part in [
        "VaultForbidden: could not publish the volume of pod tenant/controller-0",
        "could not read `credential`: HTTP 403",
        "hint: assign `Key Vault Secrets User`",
        "it will not heal by itself",
    ] {
        assert!(status.message().contains(part), "{part} is not in {}", status.message());
    }
    let page = node.page.render();
    let line = "node_publish_error_total{provider=\"azure\",error_type=\"VaultForbidden\",os_type=\"linux\"} 1";
    assert!(page.lines().any(|it| it == line), "{page}");
    node.end().await;
}

#[tokio::test]
#[ignore = "mounts file systems: run as root or with `cargo xtask test`"]
async fn a_republish_that_cannot_be_read_does_not_make_the_kubelet_forget_what_is_mounted() {
    let node = Node::ready().await;
    let target = node.target("a");
    node.publish(&target).await.unwrap();
    let mut invalid = request(&target);
    invalid.secrets.insert(TOKENS.to_owned(), "{".to_owned());
    let status = node.kubelet().node_publish_volume(invalid).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    node.unpublish(&target).await.unwrap();
    let mut invalid = request(&target);
    invalid.secrets.insert(TOKENS.to_owned(), "{".to_owned());
    let status = node.kubelet().node_publish_volume(invalid).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    node.end().await;
}

#[tokio::test]
async fn twenty_volumes_are_published_at_once() {
    let node = Node::ready().await;
    node.vault.gate.forget_permits(1000);
    *node.vault.refusal.lock() = Some(forbidden());
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let (mut kubelet, target) = (node.kubelet(), node.target(&number.to_string()));
            tokio::spawn(async move { kubelet.node_publish_volume(request(&target)).await })
        })
        .collect();
    node.until("all of them wait for the vault", || *node.vault.waiting.lock() == 20).await;
    node.vault.gate.add_permits(20);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::PermissionDenied);
    }
    node.end().await;
}

#[tokio::test]
async fn a_callers_deadline_is_kept() {
    let node = Node::ready().await;
    node.vault.gate.forget_permits(1000);
    let mut call = tonic::Request::new(request(&node.target("a")));
    // The deadline travels as `grpc-timeout` and is the server's to keep; it is real time.
    call.metadata_mut().insert("grpc-timeout", "20m".parse().unwrap());
    let status = node.kubelet().node_publish_volume(call).await.unwrap_err();
    let ended = [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code());
    assert!(ended, "{status:?}");
    *node.vault.refusal.lock() = Some(forbidden());
    node.vault.gate.add_permits(1);
    node.end().await;
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_all_of_its_problems() {
    let node = Node::ready().await;
    let mut invalid = request(std::path::Path::new("/etc"));
    invalid.readonly = false;
    invalid.volume_context.remove("secretProviderClass");
    let status = node.kubelet().node_publish_volume(invalid).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for part in ["`secretProviderClass`", "`target_path`", "it will not heal by itself"] {
        assert!(status.message().contains(part), "{part} is not in {}", status.message());
    }
    assert!(status.message().contains("`readonly` is not true"));
    assert!(status.message().contains("hint: set `readOnly: true`"));
    node.clock.advance(Duration::from_secs(1));
    node.end().await;
}
