use super::*;

fn problem_texts(text: &str) -> Vec<String> {
    WorkloadTemplates::parse(text).unwrap_err().iter().map(ToString::to_string).collect()
}

/// Returns a template of the ingress operator with these fields in its pod.
fn ingress_template(pod: &str) -> String {
    format!(
        "
deployments:
  ingress-operator:
    spec:
      selector: {{matchLabels: {{name: ingress-operator}}}}
      template:
        metadata: {{labels: {{name: ingress-operator}}}}
        spec: {pod}
"
    )
}

#[test]
fn empty_templates_run_a_canary_for_every_component() {
    for text in ["", "{}", "canary: {}", "# nothing\n"] {
        assert_eq!(
            WorkloadTemplates::parse(text).unwrap(),
            WorkloadTemplates::default(),
            "{text:?}"
        );
    }
}

#[test]
fn every_problem_is_reported_with_its_field() {
    let text = "
canary:
  image: ''
  interval: often
  probeInterval: 0s
  metricsPort: 65535
  replicas: many
  imagepullpolicy: Always
  calls: {discs: '', disk: 'PUT https://x', file: nonsense}
  tolerations: {a: b}
  env: [{name: POD_NAME}]
  volumes: [{name: cloud-config, emptyDir: {}}]
  volumeMounts: [{name: x, mountPath: /mnt/certs/}]
deployments:
  nginx: {}
without: [apache]
podSecurity: lax
canaries: {}
";
    let found = problem_texts(text);
    let expected = [
        "podSecurity: `lax` is not a pod security standard",
        "canaries: unknown field",
        "canary.replicas: ",
        "canary.tolerations: ",
        "canary.image: it is empty",
        "canary.interval: `often` is not a duration",
        "canary.probeInterval: `0s` is not a duration",
        "canary.metricsPort: 65535 leaves no port for every component",
        "canary.calls.discs: `discs` is not a component",
        "canary.calls.disk: `PUT https://x` is not a call",
        "canary.calls.file: `nonsense` is not a call",
        "canary.volumes: `cloud-config` is taken",
        "canary.volumeMounts: `/mnt/certs/` is taken",
        "canary.env: `POD_NAME` is taken",
        "canary.imagepullpolicy: unknown field",
        "without: `apache` is not a deployment that uses an identity",
        "deployments: `nginx` is not a deployment that uses an identity",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn non_yaml_and_non_object_texts_are_rejected() {
    assert!(problem_texts("{a: ").first().unwrap().contains("this is not YAML"));
    assert_eq!(problem_texts("[1]"), ["the templates are not an object"]);
}

#[test]
fn a_template_without_its_container_is_refused() {
    assert_eq!(
        problem_texts(&ingress_template("{containers: [{name: operator, image: x}]}")),
        [
            "deployments.ingress-operator.spec.template.spec.containers: there is no container `ingress-operator`"
        ]
    );
}

#[test]
fn a_template_that_takes_what_is_added_is_refused() {
    let pod = "
          containers:
          - name: ingress-operator
            image: x
            env: [{name: MANAGED_AZURE_HCP_CREDENTIALS_FILE_PATH, value: /x}, {name: OTHER}]
            volumeMounts: [{name: a, mountPath: /mnt/certs}, {name: a, mountPath: /a}]
          - name: other
            image: x
            volumeMounts: [{name: a, mountPath: /mnt/certs}]
          volumes: [{name: ingress-cert, emptyDir: {}}, {name: a, emptyDir: {}}]";
    let found = problem_texts(&ingress_template(pod));
    let field = "deployments.ingress-operator.spec.template.spec";
    let text = "is reserved for the credential injection";
    assert_eq!(
        found,
        [
            format!("{field}.volumes: `ingress-cert` {text}"),
            format!("{field}.containers[name=ingress-operator].volumeMounts: `/mnt/certs` {text}"),
            format!(
                "{field}.containers[name=ingress-operator].env: `MANAGED_AZURE_HCP_CREDENTIALS_FILE_PATH` {text}"
            ),
        ]
    );
}

#[test]
fn a_template_is_a_deployment_for_every_cluster() {
    let text = "
deployments:
  ingress-operator:
    apiVersion: apps/v1beta1
    kind: StatefulSet
    metadata: {name: ingress, namespace: here}
    spec:
      template:
        spec: {containers: [{name: ingress-operator, image: x}]}
  capi-provider: {spec: {replicas: three}}
";
    let found = problem_texts(text);
    let expected = [
        "deployments.capi-provider: ",
        "deployments.ingress-operator.apiVersion: `apps/v1beta1` is not `apps/v1`",
        "deployments.ingress-operator.kind: `StatefulSet` is not `Deployment`",
        "deployments.ingress-operator.metadata.name: `ingress` is not `ingress-operator`",
        "deployments.ingress-operator.metadata.namespace: a template is for every hosted cluster",
        "deployments.ingress-operator.spec.selector.matchLabels: Required value",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn api_server_template_without_user_is_rejected() {
    let template = |pod: &str, server: &str, more: &str| {
        format!(
            "
deployments:
  kube-apiserver:
    spec:
      selector: {{matchLabels: {{app: kas}}}}
      template:
        metadata: {{labels: {{app: kas}}, annotations: {{{more}}}}}
        spec:
          {pod}
          containers:
          - {{name: kube-apiserver, image: x, securityContext: {{{server}}}}}
"
        )
    };
    let own = |part: &str| format!("          - {{name: azure-kms-provider-{part}, image: x}}\n");
    let refused = [
        (template("", "", ""), "active"),
        (template("securityContext: {runAsNonRoot: true}", "runAsGroup: 7", ""), "active"),
        (template("", "", "") + &own("active"), "backup"),
    ];
    for (text, part) in refused {
        let expected = format!(
            "deployments.kube-apiserver.spec.template.spec.securityContext: `azure-kms-provider-{part}` must run as the user of `kube-apiserver`, but the template does not set that user"
        );
        assert_eq!(problem_texts(&text), [expected], "{text}");
    }
    for text in [
        template("securityContext: {runAsUser: 1001}", "", ""),
        template("", "runAsUser: 0", ""),
        template("", "", "openshift.io/required-scc: restricted-v2"),
        template("", "", "") + &own("active") + &own("backup"),
    ] {
        assert!(WorkloadTemplates::parse(&text).is_ok(), "{text}");
    }
}

#[test]
fn a_selector_must_find_its_pods() {
    let text = ingress_template("{containers: [{name: ingress-operator, image: x}]}")
        .replace("labels: {name: ingress-operator}", "labels: {name: other}");
    assert_eq!(
        problem_texts(&text),
        [
            "deployments.ingress-operator.spec.selector.matchLabels.name: the pods do not have this label"
        ]
    );
}

#[test]
fn nulls_and_status_of_a_template_do_not_count() {
    let pod =
        "{containers: [{name: ingress-operator, image: x, command: null}], nodeSelector: null}";
    let text = format!("{}    status: {{replicas: 1}}\n", ingress_template(pod));
    let templates = WorkloadTemplates::parse(&text).unwrap();
    let template = templates.deployment("ingress-operator").unwrap();
    let pod = &template["spec"]["template"]["spec"];
    assert_eq!(
        *pod,
        serde_json::json!({"containers": [{"name": "ingress-operator", "image": "x"}]})
    );
    assert!(template.get("status").is_none());
    assert!(templates.deployment("capi-provider").is_none());
}

#[test]
fn every_consumer_deployment_may_have_a_template() {
    let known = reserved_names::templatable_deployments();
    assert_eq!(known.len(), 11, "nine consumers and the two operators that render others");
    for name in known {
        let claims = reserved_names::reserved_names(name).unwrap();
        assert!(!claims.required_containers.is_empty(), "{name}");
    }
    assert_eq!(reserved_names::reserved_names("nginx"), None);
}

#[test]
fn unknown_field_error_lists_known_fields() {
    let problems = WorkloadTemplates::parse("canary: {imag: x}").unwrap_err();
    let hint = problems.iter().next().unwrap().hint.clone().unwrap();
    for field in
        ["image", "resources", "volumes", "volumeMounts", "nodeSelector", "priorityClassName"]
    {
        assert!(hint.contains(field), "{field}: {hint}");
    }
}

#[test]
fn without_an_identity_that_reads_the_vault_the_components_that_want_it_are_named() {
    let deployment = |name: &str, container: &str| {
        format!(
            "  {name}: {{spec: {{selector: {{matchLabels: {{app: x}}}}, template: {{metadata: {{labels: {{app: x}}}}, spec: {{containers: [{{name: {container}, image: x}}]}}}}}}}}\n"
        )
    };
    let text = format!(
        "deployments:\n{}{}",
        deployment("capi-provider", "manager"),
        deployment("ingress-operator", "ingress-operator"),
    );
    let templates = WorkloadTemplates::parse(&text).unwrap();
    let lints = templates.lint_vault_reader(None);
    let lints: Vec<_> = lints.iter().map(ToString::to_string).collect();
    assert_eq!(
        lints,
        [
            "deployments.capi-provider: `manager` lacks ARO_HCP_KEY_VAULT_USER_CLIENT_ID, the identity that reads the vault"
        ]
    );
    let reader = "7c1f6a2b-8e40-4e0a-9d53-0f2d1c9e6b47".parse().unwrap();
    assert_eq!(templates.lint_vault_reader(Some(reader)), ValidationProblems::default());
    assert_eq!(WorkloadTemplates::default().lint_vault_reader(None), ValidationProblems::default());
}

#[test]
fn flags_win_over_the_file_and_are_held_to_the_same_rules() {
    let over = |text: &str, canary: Value| {
        let Value::Object(canary) = canary else { panic!("{canary} is no object") };
        WorkloadTemplates::parse_with_canary_overrides(text, canary)
    };
    let text = "canary: {image: a, replicas: 2, calls: {disk: '', file: ''}}";
    let call = "GET https://management.azure.com/x?api-version=1";
    let flags = json!({"image": "b", "calls": {"disk": call}});
    let canary = over(text, flags.clone()).unwrap().canary;
    assert_eq!((canary.image.as_str(), canary.replicas, canary.calls.len()), ("b", 2, 2));
    assert_eq!(canary.calls[&Component::Disk], call);
    for text in ["", "canary:", "without: [capi-provider]"] {
        assert_eq!(over(text, flags.clone()).unwrap().canary.image, "b", "{text}");
    }
    assert!(over("canary: 3", flags).is_err());
    for (flags, field) in [
        (json!({"metricsPort": 0}), "canary.metricsPort"),
        (json!({"image": ""}), "canary.image"),
        (json!({"calls": {"disk": "foo"}}), "canary.calls.disk"),
        (json!({"hostNetwork": true, "metricsPort": 65535}), "canary.metricsPort"),
    ] {
        let problems = over("", flags).unwrap_err();
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, [field]);
    }
}

#[test]
fn an_address_that_only_the_pod_reaches_is_refused() {
    let text = |address: &str, host_network: bool| {
        format!("canary: {{metricsAddress: '{address}', hostNetwork: {host_network}}}")
    };
    let is_good = |address, of_node| WorkloadTemplates::parse(&text(address, of_node)).is_ok();
    for address in ["127.0.0.1", "::1", "10.0.0.4"] {
        let expected = format!(
            "canary.metricsAddress: the kubelet probes {address} on the node, but the address belongs to the pod"
        );
        assert_eq!(problem_texts(&text(address, false)), [expected]);
        assert!(is_good(address, true), "{address}");
    }
    for address in ["0.0.0.0", "::"] {
        assert!(is_good(address, false) && is_good(address, true), "{address}");
    }
}

#[test]
fn no_port_of_a_canary_is_that_of_a_plugin_beside_it() {
    let is_good = |port: u16, host_network: bool| {
        let text = format!("canary: {{metricsPort: {port}, hostNetwork: {host_network}}}");
        WorkloadTemplates::parse(&text).is_ok()
    };
    for port in [8787, 8788, 8095, 8096] {
        assert!(!is_good(port, false) && !is_good(port, true), "{port}");
        assert!(is_good(port - 8, false) && !is_good(port - 8, true), "{port}");
    }
    assert!(is_good(8097, true) && is_good(8078, true) && is_good(9464, true));
}
