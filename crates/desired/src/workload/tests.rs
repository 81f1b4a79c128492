use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::fixture::{
    AZURE, KMS, any_changes, desired_objects_of, example_inputs, example_with_changes,
    validated_cluster,
};
use crate::objects::{DesiredObject, OwnedKind, desired_objects};
use crate::templates::WorkloadTemplates;
use crate::templates::reserved_names::reserved_names;

/// Returns the deployments of the example with these changes and templates.
fn deployments(changes: &[(String, Value)], templates: &str) -> BTreeMap<String, Value> {
    let wire = example_with_changes(changes);
    let templates = WorkloadTemplates::parse(templates).unwrap();
    deployments_by_name(&desired_objects(
        &validated_cluster(&wire),
        &example_inputs(&wire, &templates),
    ))
}

fn deployments_by_name(objects: &[DesiredObject]) -> BTreeMap<String, Value> {
    let deployments = objects.iter().filter(|object| object.key.kind == OwnedKind::Deployment);
    deployments.map(|object| (object.key.name.clone(), object.value.clone())).collect()
}

fn container<'a>(deployment: &'a Value, name: &str) -> &'a Value {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    containers.iter().find(|container| container["name"] == name).unwrap()
}

fn arguments(deployment: &Value, name: &str) -> Vec<String> {
    let arguments = container(deployment, name)["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap()
}

#[test]
fn the_canary_of_the_control_plane_operator() {
    insta::assert_snapshot!(yaml(&deployments(&[], "")["control-plane-operator"]));
}

#[test]
fn the_canary_of_the_api_server_with_the_plugins_of_two_keys() {
    let key = json!({"keyVaultName": "harbour-keys", "keyName": "old", "keyVersion": "1"});
    let deployments = deployments(&[(format!("{KMS}/backupKey"), key)], "");
    insta::assert_snapshot!(yaml(&deployments["kube-apiserver"]));
}

#[test]
fn liveness_probe_does_not_depend_on_the_key() {
    let key = json!({"keyVaultName": "harbour-keys", "keyName": "old", "keyVersion": "1"});
    let deployments = deployments(&[(format!("{KMS}/backupKey"), key)], "");
    for part in [KeyRole::Active, KeyRole::Backup] {
        let plugin = container(&deployments["kube-apiserver"], part.container_name());
        // `/healthz` checks the key.
        assert_eq!(plugin["livenessProbe"]["httpGet"]["path"], "/livez");
    }
}

#[test]
fn canary_arguments() {
    let deployments = deployments(&[], "");
    let lines: Vec<_> = deployments
        .iter()
        .map(|(name, deployment)| {
            let main = deployment["spec"]["template"]["spec"]["containers"][0]["name"].clone();
            let main = main.as_str().unwrap();
            format!("{name}/{main}\n  {}", arguments(deployment, main).join("\n  "))
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_canary_keeps_the_restricted_standard() {
    for (name, deployment) in deployments(&[], "") {
        let pod = &deployment["spec"]["template"]["spec"];
        let context = &pod["securityContext"];
        assert_eq!(
            (&context["runAsNonRoot"], &context["seccompProfile"]["type"]),
            (&json!(true), &json!("RuntimeDefault"))
        );
        assert!(pod.get("hostNetwork").is_none(), "{name}");
        for container in pod["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{name}");
            assert!(container["resources"]["requests"].is_object(), "{name}");
        }
        for volume in pod["volumes"].as_array().unwrap() {
            let kinds: Vec<_> = volume.as_object().unwrap().keys().map(String::as_str).collect();
            assert!(!kinds.contains(&"hostPath"), "{name}");
        }
    }
}

#[test]
fn in_the_network_of_the_node_every_port_is_taken_once() {
    let mut ports = Vec::new();
    let key = json!({"keyVaultName": "harbour-keys", "keyName": "old", "keyVersion": "1"});
    let changes = [(format!("{KMS}/backupKey"), key)];
    for (name, deployment) in
        deployments(&changes, "canary: {hostNetwork: true, metricsPort: 9500}")
    {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["hostNetwork"], true, "{name}");
        let update = &deployment["spec"]["strategy"]["rollingUpdate"];
        assert_eq!(update, &json!({"maxSurge": 0, "maxUnavailable": 1}), "{name}");
        for container in pod["containers"].as_array().unwrap() {
            let found = container["ports"].as_array().unwrap().iter();
            ports.extend(found.map(|port| port["containerPort"].as_u64().unwrap()));
        }
    }
    let count = ports.len();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), count);
    assert_eq!(ports.iter().filter(|port| (9500..9509).contains(*port)).count(), 9);
}

#[test]
fn canary_template_values_are_applied() {
    let templates = "
canary:
  image: registry.example.com/lanyard@sha256:1
  command: [/lanyard]
  imagePullPolicy: Always
  imagePullSecrets: [pull]
  interval: 5s
  replicas: 2
  calls:
    disk: GET https://management.azure.com/x?api-version=1
    file: ''
  nodeSelector: {pool: system}
  tolerations: [{operator: Exists}]
  env: [{name: HTTPS_PROXY, value: http://127.0.0.1:1}]
  volumes: [{name: ca, configMap: {name: ca}}]
  volumeMounts: [{name: ca, mountPath: /ca}]
  labels: {team: fleet, app: not-this}
  annotations: {note: x}
without: [ingress-operator]
";
    let deployments = deployments(&[], templates);
    assert_eq!(deployments.len(), 8);
    let disk = &deployments["azure-disk-csi-driver-controller"];
    assert_eq!(disk["spec"]["replicas"], 2);
    let pods = &disk["spec"]["template"];
    assert_eq!(pods["metadata"]["labels"]["app"], "azure-disk-csi-driver-controller");
    assert_eq!(pods["metadata"]["labels"]["team"], "fleet");
    assert_eq!(pods["metadata"]["annotations"]["note"], "x");
    assert_eq!(pods["spec"]["nodeSelector"], json!({"pool": "system"}));
    assert_eq!(pods["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(pods["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    let driver = container(disk, "csi-driver");
    assert_eq!(driver["image"], "registry.example.com/lanyard@sha256:1");
    assert_eq!(driver["imagePullPolicy"], "Always");
    assert_eq!(driver["command"], json!(["/lanyard"]));
    assert!(
        driver["env"].as_array().unwrap().iter().any(|variable| variable["name"] == "HTTPS_PROXY")
    );
    assert!(driver["volumeMounts"].as_array().unwrap().iter().any(|mount| mount["name"] == "ca"));
    let arguments = arguments(disk, "csi-driver");
    assert!(
        arguments.contains(&"--call=GET https://management.azure.com/x?api-version=1".to_owned())
    );
    assert!(arguments.contains(&"--interval=5s".to_owned()));
    let file = &deployments["azure-file-csi-driver-controller"];
    let call = self::arguments(file, "csi-driver");
    assert!(!call.iter().any(|argument| argument.starts_with("--call")));
}

const API_SERVER: &str = "
deployments:
  kube-apiserver:
    metadata: {labels: {own: label}}
    spec:
      replicas: 3
      selector: {matchLabels: {app: kube-apiserver}}
      template:
        metadata: {labels: {app: kube-apiserver}, annotations: {own: annotation}}
        spec:
          containers:
          - name: kube-apiserver
            image: hyperkube
            securityContext: {runAsUser: 1001, runAsNonRoot: true, allowPrivilegeEscalation: true}
            volumeMounts: [{name: logs, mountPath: /var/log}]
          - {name: sidecar, image: x}
          volumes: [{name: logs, emptyDir: {}}]
";

#[test]
fn template_keeps_its_fields_and_gets_the_credential_injection() {
    insta::assert_snapshot!(yaml(&deployments(&[], API_SERVER)["kube-apiserver"]));
}

/// The flags of HyperShift's API server.
const CONFIG_FLAG: &str =
    "--encryption-provider-config=/etc/kubernetes/secret-encryption/config.yaml";
const RELOAD_FLAG: &str = "--encryption-provider-config-automatic-reload=false";

#[test]
fn a_templated_api_server_gets_the_flags_that_it_lacks() {
    let server_arguments = |fields: &str, changes: &[(String, Value)]| {
        let templates = API_SERVER.replace(
            "            image: hyperkube\n",
            &format!("            image: hyperkube\n            {fields}\n"),
        );
        let deployment = deployments(changes, &templates).remove("kube-apiserver").unwrap();
        container(&deployment, "kube-apiserver").get("args").cloned().unwrap_or_default()
    };
    let command = "command: [hyperkube, kube-apiserver]";
    assert_eq!(server_arguments(command, &[]), json!([CONFIG_FLAG, RELOAD_FLAG]));
    assert_eq!(
        server_arguments(&format!("{command}\n            args: [-v=5]"), &[]),
        json!(["-v=5", CONFIG_FLAG, RELOAD_FLAG])
    );
    let given = format!("command: [kube-apiserver, '{CONFIG_FLAG}']");
    assert_eq!(server_arguments(&given, &[]), json!([RELOAD_FLAG]));
    let script = "command: [/bin/sh, -c, 'exec kube-apiserver']";
    assert_eq!(server_arguments(script, &[]), Value::Null);
}

#[test]
fn a_cluster_without_a_key_gets_no_templated_api_server() {
    let no_key = [("/spec/secretEncryption".to_owned(), Value::Null)];
    assert!(!deployments(&no_key, API_SERVER).contains_key("kube-apiserver"));
}

#[test]
fn templates_without_the_encryption_configuration_are_linted() {
    let lint = |container: &str| {
        let templates = API_SERVER
            .replace("image: hyperkube", &format!("image: hyperkube\n            {container}"));
        WorkloadTemplates::parse(&templates).unwrap().lint_encryption_flags()
    };
    assert_eq!(lint("args: [-v=5]"), None);
    let found = lint("args: [--encryption-provider-config=/own.yaml]").unwrap();
    assert_eq!(
        found.field,
        "deployments.kube-apiserver.spec.template.spec.containers[name=kube-apiserver]"
    );
    assert!(lint("command: [/bin/bash, -c, kube-apiserver]").is_some());
    assert_eq!(WorkloadTemplates::default().lint_encryption_flags(), None);
}

#[test]
fn the_socket_volume_may_be_drained_besides_the_volumes_of_the_template() {
    let annotation_with = |canary: &str, own: &str| {
        let server = API_SERVER.replace("own: annotation", &format!("own: annotation{own}"));
        let mut deployments = deployments(&[], &format!("{canary}{server}"));
        let deployment = deployments.remove("kube-apiserver").unwrap();
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        annotations["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"].clone()
    };
    let annotation = |own: &str| annotation_with("", own);
    let key = ", cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
    assert_eq!(annotation(""), "kms-socket");
    // The KMS plugins get the volumes of canaries. The template has a volume `logs` of its own.
    let canary = "
canary:
  volumes:
  - {name: cache, emptyDir: {}}
  - {name: roots, configMap: {name: roots}}
  - {name: host, hostPath: {path: /var/run/host}}
  - {name: logs, emptyDir: {}}
";
    assert_eq!(annotation_with(canary, ""), "kms-socket,cache,host");
    let own = format!("{key}: 'host, logs'");
    assert_eq!(annotation_with(canary, &own), "host, logs,kms-socket,cache");
    assert_eq!(annotation(&format!("{key}: logs")), "logs,kms-socket");
    assert_eq!(annotation(&format!("{key}: 'logs,kms-socket'")), "logs,kms-socket");
    // Only the API server has such a volume.
    let other = &deployments(&[], "")["ingress-operator"]["spec"]["template"]["metadata"];
    assert_eq!(
        other["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"],
        Value::Null
    );
}

#[test]
fn a_configuration_in_two_volumes_is_hashed_once() {
    let hash = |volumes: &str| {
        let templates = format!(
            "
deployments:
  azure-cloud-controller-manager:
    spec:
      selector: {{matchLabels: {{app: x}}}}
      template:
        metadata: {{labels: {{app: x}}}}
        spec:
          containers: [{{name: cloud-controller-manager, image: x}}]
          volumes: {volumes}
"
        );
        let deployments = deployments(&[], &templates);
        let pods = &deployments["azure-cloud-controller-manager"]["spec"]["template"];
        pods["metadata"]["annotations"]["component.hypershift.openshift.io/config-hash"].clone()
    };
    let once = hash("[]");
    assert_eq!(once.as_str().unwrap().len(), 8);
    let secret = "{name: own, secret: {secretName: azure-cloud-config}}";
    let projected = "{name: all, projected: {sources: [{secret: {name: azure-cloud-config}}]}}";
    assert_eq!(hash(&format!("[{secret}, {projected}]")), once);
    // A ConfigMap of the same name is another object.
    let map = "{name: map, configMap: {name: azure-cloud-config}}";
    assert_eq!(
        hash(&format!("[{map}, {{name: map-2, configMap: {{name: azure-cloud-config}}}}]"))
            .as_str()
            .unwrap()
            .len(),
        16
    );
}

#[test]
fn a_plugin_runs_as_the_api_server_that_it_stands_beside() {
    let of_container = "{runAsUser: 1001, runAsNonRoot: true, allowPrivilegeEscalation: true}";
    let cases = [
        // The pod's settings apply to both containers.
        ("securityContext: {runAsUser: 1001, runAsNonRoot: true}\n          ", "{}", json!({})),
        ("", of_container, json!({"runAsUser": 1001, "runAsNonRoot": true})),
        (
            "securityContext: {runAsUser: 65532, fsGroup: 7}\n          ",
            "{runAsUser: 1001, runAsGroup: 7, seLinuxOptions: {type: x}}",
            json!({"runAsUser": 1001, "runAsGroup": 7}),
        ),
        ("", "{runAsUser: 0, privileged: true}", json!({"runAsUser": 0})),
    ];
    for (pod, server, expected) in cases {
        let templates = API_SERVER
            .replace(of_container, server)
            .replace("containers:\n", &format!("{pod}containers:\n"));
        let deployment = deployments(&[], &templates).remove("kube-apiserver").unwrap();
        let mut context = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        });
        context.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        let plugin = container(&deployment, "azure-kms-provider-active");
        assert_eq!(plugin["securityContext"], context, "{pod} {server}");
    }
}

#[test]
fn what_a_plugin_mounts_is_in_the_pod_of_a_template() {
    let canary = "
canary:
  env: [{name: SSL_CERT_FILE, value: /ca/ca.crt}]
  volumes: [{name: ca, configMap: {name: ca}}, {name: logs, configMap: {name: other}}]
  volumeMounts: [{name: ca, mountPath: /ca}, {name: logs, mountPath: /logs}]";
    let key = json!({"keyVaultName": "harbour-keys", "keyName": "old", "keyVersion": "1"});
    let changes = [(format!("{KMS}/backupKey"), key)];
    let deployment =
        deployments(&changes, &format!("{canary}{API_SERVER}")).remove("kube-apiserver").unwrap();
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let named =
        |name: &str| volumes.iter().filter(|it| it["name"] == name).cloned().collect::<Vec<_>>();
    assert_eq!(named("ca"), [json!({"name": "ca", "configMap": {"name": "ca"}})]);
    assert_eq!(named("logs"), [json!({"name": "logs", "emptyDir": {}})], "the template's");
    for part in [KeyRole::Active, KeyRole::Backup] {
        let mounts = container(&deployment, part.container_name())["volumeMounts"].clone();
        let mounts = mounts.as_array().unwrap().clone();
        assert!(mounts.contains(&json!({"name": "ca", "mountPath": "/ca"})));
    }
}

#[test]
fn templated_operators_get_class_and_secret_names() {
    let templates = |name: &str| {
        format!(
            "deployments: {{{name}: {{spec: {{selector: {{matchLabels: {{app: x}}}}, template: {{metadata: {{labels: {{app: x}}}}, spec: {{containers: [{{name: {name}, image: x}}]}}}}}}}}}}"
        )
    };
    let variables = |name: &str| {
        let deployments = deployments(&[], &templates(name));
        assert_eq!(deployments.len(), 10);
        container(&deployments[name], name)["env"].clone()
    };
    assert_eq!(
        variables("cluster-network-operator"),
        json!([
            {"name": "ARO_HCP_SECRET_PROVIDER_CLASS", "value": "managed-azure-network"},
            {"name": "MANAGED_AZURE_HCP_CREDENTIALS_FILE_PATH", "value": "harbour-network"},
        ])
    );
    assert_eq!(
        variables("cluster-storage-operator"),
        json!([
            {"name": "ARO_HCP_SECRET_PROVIDER_CLASS_FOR_DISK", "value": "managed-azure-disk-csi"},
            {"name": "ARO_HCP_SECRET_PROVIDER_CLASS_FOR_FILE", "value": "managed-azure-file-csi"},
        ])
    );
}

/// Returns a template with one container.
fn template(deployment: &str, container: &str) -> String {
    format!(
        "  {deployment}: {{spec: {{selector: {{matchLabels: {{app: x}}}}, template: {{metadata: {{labels: {{app: x}}}}, spec: {{containers: [{{name: {container}, image: x}}]}}}}}}}}\n"
    )
}

#[test]
fn templated_components_get_component_variables() {
    let reader = "7a1c0e94-3d52-4b8f-a6e7-90f4d2b5c831";
    let reader = json!({"name": "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", "value": reader});
    let cases = [
        (
            "control-plane-operator",
            "control-plane-operator",
            json!([reader, {"name": "MANAGED_SERVICE", "value": "ARO-HCP"}]),
        ),
        ("capi-provider", "manager", json!([reader])),
        (
            "azure-disk-csi-driver-controller",
            "csi-driver",
            json!([{"name": "AZURE_CREDENTIAL_FILE", "value": "/etc/kubernetes/cloud.conf"}]),
        ),
    ];
    for (deployment, name, expected) in cases {
        let templates = format!("deployments:\n{}", template(deployment, name));
        let deployments = deployments(&[], &templates);
        assert_eq!(container(&deployments[deployment], name)["env"], expected, "{deployment}");
    }
}

#[test]
fn a_plugin_that_a_template_has_is_kept_and_gets_its_volumes() {
    let plugin = "containers: [{name: azure-kms-provider-active, image: own}, {name:";
    let templates = format!("deployments:\n{}", template("kube-apiserver", "kube-apiserver"))
        .replace("containers: [{name:", &format!("securityContext: {{runAsUser: 1001}}, {plugin}"));
    let deployment = deployments(&[], &templates).remove("kube-apiserver").unwrap();
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    let plugin = container(&deployment, "azure-kms-provider-active");
    assert_eq!(plugin["image"], "own");
    let mounts = plugin["volumeMounts"].as_array().unwrap();
    let paths: Vec<_> = mounts.iter().map(|mount| mount["mountPath"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/mnt/certs", "/etc/kubernetes", "/opt"]);
}

#[test]
fn managed_hsm_is_probed_at_its_host_without_a_proof_call() {
    let kind = (format!("{KMS}/keyVaultType"), json!("ManagedHSM"));
    let deployments = deployments(&[kind], "");
    let server = &deployments["kube-apiserver"];
    let canary = arguments(server, "kube-apiserver");
    assert!(!canary.iter().any(|argument| argument.starts_with("--call")));
    let key = "--key-url=https://harbour-keys.managedhsm.azure.net/keys/etcd-encryption/4f9d2c7b1e8a46f0b35d9c6e7a1f2084";
    assert!(canary.contains(&key.to_owned()));
    assert!(arguments(server, "azure-kms-provider-active").contains(&"--managed-hsm".to_owned()));
}

#[test]
fn private_vault_key_is_probed_only_by_the_kms_identity() {
    let wire = example_with_changes(&[(format!("{KMS}/keyVaultAccess"), json!("Private"))]);
    let templates = WorkloadTemplates::default();
    let private_router = "172.30.0.100".parse().ok();
    let inputs = DesiredObjectInputs { private_router, ..example_inputs(&wire, &templates) };
    let deployments = deployments_by_name(&desired_objects(&validated_cluster(&wire), &inputs));
    let tries = |name: &str, container: &str| {
        arguments(&deployments[name], container).contains(&"--probe=encryption".to_owned())
    };
    assert!(tries("kube-apiserver", "kube-apiserver"));
    assert!(!tries("control-plane-operator", "control-plane-operator"));
}

#[test]
fn config_change_changes_the_hash_of_its_consumers() {
    let hash = |name: &str, changes: &[(String, Value)]| {
        let annotations =
            deployments(changes, "")[name]["spec"]["template"]["metadata"]["annotations"].clone();
        annotations[CONFIG_HASH_ANNOTATION].clone()
    };
    let moved = [(format!("{AZURE}/resourceGroup"), json!("another"))];
    for name in
        ["azure-cloud-controller-manager", "azure-disk-csi-driver-controller", "kube-apiserver"]
    {
        assert_ne!(hash(name, &[]), hash(name, &moved), "{name}");
    }
    assert_eq!(hash("ingress-operator", &[]), Value::Null);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A template that avoids the reserved names never collides with the additions.
    #[test]
    fn additions_use_only_reserved_names(changes in any_changes()) {
        for (name, deployment) in deployments_by_name(&desired_objects_of(&example_with_changes(&changes))) {
            let claims = reserved_names(&name).unwrap();
            let pod = &deployment["spec"]["template"]["spec"];
            for volume in pod["volumes"].as_array().unwrap() {
                prop_assert!(claims.volumes.contains(volume["name"].as_str().unwrap()));
            }
            for container in pod["containers"].as_array().unwrap() {
                let of = container["name"].as_str().unwrap();
                let is_canary = container["args"][0] == "canary" && name == "kube-apiserver";
                for mount in container["volumeMounts"].as_array().unwrap() {
                    let path = mount["mountPath"].as_str().unwrap();
                    prop_assert!(is_canary || claims.mounts[of].contains(path), "{of} {path}");
                }
                for variable in container["env"].as_array().into_iter().flatten() {
                    let variable = variable["name"].as_str().unwrap();
                    let own = ["POD_NAME", "POD_NAMESPACE"].contains(&variable);
                    prop_assert!(own || claims.variables[of].contains(variable), "{of} {variable}");
                }
            }
        }
    }

    #[test]
    fn no_deployment_names_a_volume_or_a_mount_twice(changes in any_changes()) {
        for (name, deployment) in deployments_by_name(&desired_objects_of(&example_with_changes(&changes))) {
            let pod = &deployment["spec"]["template"]["spec"];
            let distinct = |list: &Value, field: &str| {
                let items = list.as_array().unwrap();
                let named: Map<String, Value> = items
                    .iter()
                    .map(|item| (item[field].as_str().unwrap().to_owned(), Value::Null))
                    .collect();
                named.len() == items.len()
            };
            prop_assert!(distinct(&pod["volumes"], "name"), "{name}");
            for container in pod["containers"].as_array().unwrap() {
                prop_assert!(distinct(&container["volumeMounts"], "mountPath"), "{name}");
                for mount in container["volumeMounts"].as_array().unwrap() {
                    let volumes = pod["volumes"].as_array().unwrap();
                    prop_assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]));
                }
            }
        }
    }
}

#[test]
fn probes_use_the_specific_metrics_address() {
    let templates = "canary: {hostNetwork: true, metricsAddress: 127.0.0.1}";
    for (name, deployment) in deployments(&[], templates) {
        for container in deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap() {
            let arguments = container["args"].to_string();
            assert!(arguments.contains("--metrics-addr=127.0.0.1:"), "{name}: {arguments}");
            assert!(!arguments.contains("0.0.0.0"), "{name}: {arguments}");
            let probe = &container["livenessProbe"]["httpGet"];
            assert_eq!(probe["host"], "127.0.0.1", "{name}");
            let is_plugin = container["args"][0] == "kms";
            assert_eq!(arguments.contains("--healthz-addr=127.0.0.1"), is_plugin, "{name}");
        }
    }
}
