//! Runs `lanyard canary` as its pods do, against a local Azure: nine processes with nine identities.

#![cfg(all(feature = "canary", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "canary/api_server.rs"]
mod api_server;
#[path = "canary/canary_process.rs"]
mod canary_process;
#[path = "support/up_process.rs"]
mod up_process;

use lanyard_desired::desired_proof_calls;
use lanyard_desired::proof::ProofTarget;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use self::api_server::FakePodApiServer;
use self::canary_process::{TestCanaryProcess, credential_file, example_cluster, wait_for};
use self::up_process::UpProcess;

const GRANTED_HOP: &str = "granted";

/// Asserts that the canary had a valid token at all times.
fn assert_no_lapse(canary: &TestCanaryProcess) {
    let component = canary.component;
    assert_eq!(canary.metric_value("lanyard_canary_authenticated"), Some(1.0), "{component}");
    assert_eq!(canary.metric_value("lanyard_canary_lapses_total"), Some(0.0), "{component}");
    for result in ["unauthenticated", "no-token", "refused"] {
        let line = format!(r#"lanyard_canary_calls_total{{result="{result}"}}"#);
        assert_eq!(canary.metric_value(&line), Some(0.0), "{component}: {result}");
    }
}

/// The display name of the role that is assigned to a component.
fn expected_role(component: Component) -> &'static str {
    match component {
        Component::CloudProvider => "Azure Red Hat OpenShift Cloud Controller Manager",
        Component::NodePoolManagement => {
            "Azure Red Hat OpenShift Hosted Control Planes Cluster API Provider"
        }
        Component::ControlPlaneOperator => {
            "Azure Red Hat OpenShift Hosted Control Planes Control Plane Operator"
        }
        Component::ImageRegistry => "Azure Red Hat OpenShift Image Registry Operator",
        Component::Ingress => "Azure Red Hat OpenShift Cluster Ingress Operator",
        Component::Network => "Azure Red Hat OpenShift Network Operator",
        Component::Disk => "Azure Red Hat OpenShift Disk Storage Operator",
        Component::File => "Azure Red Hat OpenShift File Storage Operator",
        Component::Kms => "Key Vault Crypto User",
    }
}

/// The role by which the local Azure grants the component's call.
fn granting_role(up: &UpProcess, azure: &Value, component: Component) -> String {
    let rows = azure["components"].as_array().unwrap();
    let row = rows.iter().find(|row| row["component"] == component.name()).unwrap();
    let proof = &desired_proof_calls(&example_cluster())[&component].granted;
    let (kind, scope) = match &proof.target {
        ProofTarget::Arm { path } => ("action", path.clone()),
        ProofTarget::Vault { vault, object } => {
            let ending = format!("/vaults/{vault}");
            let resources = azure["resources"].as_array().unwrap().iter();
            let mut ids = resources.map(|id| id.as_str().unwrap());
            let id = ids.find(|id| id.ends_with(&ending)).unwrap();
            ("dataAction", format!("{id}{}", object.path()))
        }
    };
    let principal = row["clientId"].as_str().unwrap();
    let query = format!("explain?principal={principal}&scope={scope}&{kind}={}", proof.permission);
    let answer = up.get_control(&query);
    assert_eq!(answer["granted"], true, "{component}: {answer}");
    answer["role"].as_str().unwrap().to_owned()
}

/// Asserts that a log, written at the lowest level, contains no secrets.
fn assert_no_secrets(text: &str) {
    for marker in ["PRIVATE KEY", "eyJ", "LS0tLS1CRUdJTi", "\"MII"] {
        assert!(!text.contains(marker), "{marker} in the output");
    }
}

#[test]
fn nine_canaries_survive_rotation_and_report_lost_roles() {
    let (mounts, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let up = UpProcess::start(mounts.path());
    assert_eq!(up.report["ok"], true, "{}", up.report);
    let start = |component| {
        let more = ["--no-annotation"];
        TestCanaryProcess::start(&up, mounts.path(), scratch.path(), component, &more)
    };
    let canaries: Vec<_> = Component::ALL.into_iter().map(start).collect();
    for canary in &canaries {
        canary.wait_until(|it| it.is_hop_good(GRANTED_HOP) == Some(true));
        assert!(canary.fetch_page("/healthz").0 && canary.fetch_page("/readyz").0);
        assert_no_lapse(canary);
    }

    for component in Component::ALL {
        let body = json!({"component": component.name()}).to_string();
        assert_eq!(up.control_request("POST", "rotate", &body).0, 201, "{component}");
    }
    let thumbprint = |it: &TestCanaryProcess| {
        let page = it.fetch_page("/metrics").1;
        let line = page.lines().find(|line| line.starts_with("lanyard_canary_credential_info"));
        line.unwrap().to_owned()
    };
    let before: Vec<_> = canaries.iter().map(thumbprint).collect();
    for (canary, before) in canaries.iter().zip(&before) {
        canary.wait_until(|it| {
            assert_eq!(
                it.metric_value("lanyard_canary_authenticated"),
                Some(1.0),
                "{}",
                it.component
            );
            it.metric_value("lanyard_canary_rotations_total") == Some(1.0)
        });
        let calls = r#"lanyard_canary_calls_total{result="granted"}"#;
        let created = canary.metric_value(calls).unwrap();
        canary.wait_until(|it| it.metric_value(calls).unwrap() > created);
        assert_ne!(&thumbprint(canary), before, "{}", canary.component);
        assert_no_lapse(canary);
        assert_eq!(canary.is_hop_good("entra-token"), Some(true), "{}", canary.component);
    }

    // Each call is granted only by the role of its component.
    let azure = up.get_control("state");
    for canary in &canaries {
        assert_eq!(granting_role(&up, &azure, canary.component), expected_role(canary.component));
        let body = json!({"fault": "arm-role", "component": canary.component.name()});
        assert_eq!(up.control_request("POST", "drills", &body.to_string()).0, 201);
        canary.wait_until(|it| it.is_hop_good(GRANTED_HOP) == Some(false));
        assert_eq!(canary.is_hop_good("entra-token"), Some(true), "{}", canary.component);
        let code = if canary.component == Component::Kms {
            "ForbiddenByRbac"
        } else {
            "AuthorizationFailed"
        };
        assert!(canary.log().contains(code), "{}: {code}", canary.component);
        // A broken identity does not fail the probes.
        assert!(canary.fetch_page("/healthz").0 && canary.fetch_page("/readyz").0);
    }
    for canary in &canaries {
        assert_no_secrets(&canary.log());
        assert_no_secrets(&canary.fetch_page("/metrics").1);
    }
    drop(canaries);
    assert_eq!(up.terminate().0, Some(0));
}

/// The failure code in the facts, or `good`.
fn failure_code(facts: &Value) -> &str {
    facts["failure"]["code"].as_str().unwrap_or("good")
}

#[test]
fn revoked_identity_is_reported_in_its_annotation_only() {
    let (mounts, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let up = UpProcess::start(mounts.path());
    let server = FakePodApiServer::start(scratch.path());
    let kubeconfig = server.kubeconfig.to_str().unwrap().to_owned();
    let named =
        ["--kubeconfig", &kubeconfig, "--pod-name=canary-1", "--pod-namespace=clusters-harbour"];
    let start = |component, more: &[&str]| {
        TestCanaryProcess::start(&up, mounts.path(), scratch.path(), component, more)
    };
    let disk = start(Component::Disk, &named);
    let file = start(Component::File, &["--no-annotation"]);
    let first = wait_for(|| server.read_facts());
    assert_eq!(
        (first["component"].as_str(), first["lastGoodHop"].as_str()),
        (Some("disk"), Some(GRANTED_HOP))
    );
    file.wait_until(|it| it.is_hop_good(GRANTED_HOP) == Some(true));

    let azure = up.get_control("state");
    let rows = azure["components"].as_array().unwrap();
    let row = rows.iter().find(|row| row["component"] == "disk").unwrap();
    let client = &row["clientId"];
    let effect = json!({"type": "token-error", "code": 7_000_112});
    let fault =
        json!({"name": "revoked", "service": "entra", "client_id": client, "effect": effect});
    assert_eq!(up.control_request("POST", "faults", &fault.to_string()).0, 201);
    let reported = wait_for(|| server.read_facts().filter(|facts| failure_code(facts) != "good"));
    assert_eq!(
        (failure_code(&reported), &reported["failure"]["hop"]),
        ("AADSTS7000112", &json!("entra-token"))
    );
    assert_eq!(
        (&reported["lastGoodHop"], &reported["credential"]["clientId"]),
        (&json!("credential"), client)
    );
    assert!(
        reported["failure"]["hint"].as_str().unwrap().contains("enable the application"),
        "{reported}"
    );

    assert_eq!(up.control_request("DELETE", "faults/revoked", "").0, 204);
    let healed = wait_for(|| server.read_facts().filter(|facts| failure_code(facts) == "good"));
    assert_eq!(healed, first, "the facts are the same as before the fault");
    assert_no_lapse(&disk);
    assert_no_lapse(&file);
    assert_eq!(file.metric_value(r#"lanyard_canary_failures_total{hop="entra-token"}"#), Some(0.0));

    let pod = "/api/v1/namespaces/clusters-harbour/pods/canary-1";
    let reported = format!("PATCH {pod}/status");
    let expected = [format!("GET {pod}"), reported.clone(), reported.clone(), reported];
    assert_eq!(server.requests(), expected, "one read, and one write for each change");
    assert_no_secrets(&disk.log());
    assert_no_secrets(&healed.to_string());
}

#[test]
fn control_plane_operator_canary_probes_network_and_key() {
    let (mounts, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let up = UpProcess::start(mounts.path());
    let cluster = example_cluster();
    let azure = &cluster.azure;
    let key = &cluster.encryption.as_ref().unwrap().active_key;
    let url = format!("https://{}.vault.azure.net/keys/{}/{}", key.vault, key.name, key.version);
    let kms = credential_file(mounts.path(), Component::Kms);
    let flags = [
        "--no-annotation".to_owned(),
        "--probe=network".to_owned(),
        format!("--vnet-id={}", azure.vnet.as_ref().unwrap()),
        format!("--security-group-id={}", azure.security_group.as_ref().unwrap()),
        format!("--resource-group-id={}", cluster.managed_resource_group()),
        "--probe=encryption".to_owned(),
        format!("--key-url={url}"),
        format!("--encryption-credential-file={}", kms.display()),
        "--probe-interval=2s".to_owned(),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let component = Component::ControlPlaneOperator;
    let canary = TestCanaryProcess::start(&up, mounts.path(), scratch.path(), component, &flags);
    let is = |canary: &TestCanaryProcess, probe: &str, good: f64| {
        canary.metric_value(&format!(r#"lanyard_canary_probe_good{{probe="{probe}"}}"#))
            == Some(good)
    };
    canary.wait_until(|it| is(it, "network", 1.0) && is(it, "encryption", 1.0));

    let planned_fault = json!({"fault": "arm-role", "component": "kms"}).to_string();
    assert_eq!(up.control_request("POST", "drills", &planned_fault).0, 201);
    canary.wait_until(|it| is(it, "encryption", 0.0));
    assert!(is(&canary, "network", 1.0));
    assert_eq!(canary.is_hop_good(GRANTED_HOP), Some(true), "a failed probe does not fail a hop");
    assert!(canary.log().contains("ForbiddenByRbac"));
    assert_no_secrets(&canary.log());
}
