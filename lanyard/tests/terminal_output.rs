//! The output of the commands for people: tables and helps at three widths of the terminal, and colours. Also the
//! keys of documents.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[cfg(all(feature = "canary", feature = "kms", feature = "node", feature = "operator"))]
#[path = "terminal_output/every_command.rs"]
mod every_command;
#[path = "terminal_output/foreign_text.rs"]
mod foreign_text;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;
#[path = "support/terminal.rs"]
mod terminal;

use std::process::{Command, Output, Stdio};

use reqwest::Method;
use serde_json::{Value, json};

use infra_workspace::InfraWorkspace;

const WIDTHS: [usize; 3] = [60, 80, 200];
const HOSTED_CLUSTER_IDENTITIES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hostedclusteridentities.yaml");
const CREDENTIAL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/credential-with-wrong-keys.json");
const FORECAST: [&str; 5] =
    ["forecast", "--input", HOSTED_CLUSTER_IDENTITIES, "--at", "2026-10-01T12:00:00Z"];
const IDENTITIES: [&str; 3] = ["identities", "--input", HOSTED_CLUSTER_IDENTITIES];
/// The stacks that clusters share, with the flag that names one.
const SHARED_STACKS: [(&str, &str, &str); 4] = [
    ("keyvault", "--name", "harbour-dev"),
    ("oidc", "--name", "lagoonissuer"),
    ("aks", "--prefix", "dev"),
    ("dns", "--zone", "dev.hcp.example.com"),
];
/// The commands whose documents are checked, in a directory with the files of [`document_workspace`]. Each finds what
/// the commands before it created. A word that begins with `$` is a variable of the local Azure.
const DOCUMENT_COMMANDS: &[&str] = &[
    "version",
    "forecast --input identities.yaml --at 2026-10-01T12:00:00Z",
    "identities --input identities.yaml",
    "credential check --offline credential.json",
    "up --once",
    "up --once --rotate --break unknown-application:disk",
    "plan azure -f cluster.yaml",
    "check azure",
    "sweep azure --min-age 0s",
    "import azure -f cluster.yaml",
    "apply azure -f cluster.yaml",
    "destroy infra azure --name harbour2 --infra-id harbour2-x7k2p --dry-run",
    "destroy iam azure --name harbour2 --infra-id harbour2-x7k2p --dry-run",
    "create iam azure --name harbour3 --infra-id harbour3-x7k2p --output-file iam.json \
     --resource-group-name harbour3-identities \
     --oidc-issuer-url https://account.blob.core.windows.net/container",
    "create infra azure --name harbour3 --infra-id harbour3-x7k2p --base-domain hcp.example.com \
     --workload-identities-file iam.json",
    "create keyvault azure --name dev-credentials",
    "destroy keyvault azure --name dev-credentials --dry-run",
    "create oidc azure --name lagoonissuer",
    "destroy oidc azure --name lagoonissuer --dry-run",
    "create aks azure --prefix dev",
    "destroy aks azure --prefix dev --dry-run",
    "create dns azure --zone dev.hcp.example.com",
    "destroy dns azure --zone dev.hcp.example.com --dry-run",
    "create identities azure --prefix dev --vault dev-credentials",
    "refresh identities azure --prefix dev --vault dev-credentials",
    "rotate identity azure --prefix dev --vault dev-credentials --component disk --no-wait",
    "destroy identities azure --prefix dev --vault dev-credentials --dry-run",
    "ccoctl azure create-all --name harbourcc --region eastus --output-dir ccoctl \
     --subscription-id $AZURE_SUBSCRIPTION_ID --tenant-id $AZURE_TENANT_ID \
     --credentials-requests-dir requests --dnszone-resource-group-name lanyard-dns",
    "ccoctl azure create-oidc-issuer --name harbourcc --region eastus --output-dir ccoctl \
     --subscription-id $AZURE_SUBSCRIPTION_ID --tenant-id $AZURE_TENANT_ID",
    "ccoctl azure create-managed-identities --name harbourcc --region eastus --output-dir ccoctl \
     --subscription-id $AZURE_SUBSCRIPTION_ID \
     --credentials-requests-dir requests --dnszone-resource-group-name lanyard-dns \
     --issuer-url https://harbourcc.blob.core.windows.net/harbourcc",
    "ccoctl azure delete --name harbourcc --subscription-id $AZURE_SUBSCRIPTION_ID \
     --delete-oidc-resource-group --dry-run",
    "azure operations",
    "azure drill list",
    "azure fault list",
    "azure settings get",
    "azure settings set roleAssignmentLimits.inSubscription=3999",
    "azure export",
    "azure env",
    "azure run --output json curl -sS -o /dev/null https://management.azure.com/tenants",
];
const FAULT_RULE: &str = r#"{"name": "slow-secrets", "service": "key-vault",
    "host": "harbour-identities.vault.azure.net", "path": "/secrets/harbour-cloud-provider/*",
    "times": 3, "effect": {"type": "throttle", "retryAfter": 5}}"#;

fn lanyard(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    command.args(arguments).stdin(Stdio::null());
    for variable in [
        "ARO_HCP_KEY_VAULT_USER_CLIENT_ID",
        "COLUMNS",
        "HTTPS_PROXY",
        "LANYARD_AZURE_CONTROL",
        "LANYARD_LOG",
        "MANAGED_SERVICE",
        "NO_COLOR",
        "POD_NAME",
        "POD_NAMESPACE",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Runs a command whose output goes into a pipe.
fn run_piped(command: &mut Command, columns: Option<usize>) -> Output {
    if let Some(columns) = columns {
        command.env("COLUMNS", columns.to_string());
    }
    command.output().unwrap()
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Fails for a line that is longer than the terminal, unless a word in its table or paragraph is longer than half
/// of the line: names are never cut.
fn assert_fits(text: &str, columns: usize, of: &str) {
    for paragraph in text.split("\n\n") {
        let mut words = paragraph.split_whitespace();
        let has_long_word = words.any(|word| word.chars().count() > columns / 2);
        for line in paragraph.lines() {
            let fits = line.chars().count() <= columns || has_long_word;
            assert!(fits, "{of} at {columns} columns:\n{line}");
        }
    }
    assert!(!text.contains('\x1b'), "{of} has an escape code");
}

/// The standard output of a command at each width, as [`text_at_each_width`].
fn output_at_each_width(of: &str, command: impl Fn() -> Command) -> String {
    text_at_each_width(of, command, |output| utf8(&output.stdout))
}

/// What `text` takes from the output of a command at each width. It must be the same with `NO_COLOR` and on a
/// terminal without colours.
fn text_at_each_width(
    of: &str,
    command: impl Fn() -> Command,
    text: impl Fn(&Output) -> String,
) -> String {
    let shown = WIDTHS.map(|columns| {
        let shown = text(&run_piped(&mut command(), Some(columns)));
        assert_fits(&shown, columns, of);
        for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let same = text(&run_piped(command().env(name, value), Some(columns)));
            assert_eq!(same, shown, "{of} with {name}={value}");
        }
        format!("--- {columns} columns\n{shown}")
    });
    shown.concat()
}

/// Standard output, and behind it standard error.
fn both_outputs(output: &Output) -> String {
    utf8(&output.stdout) + &utf8(&output.stderr)
}

/// Replaces each word that is a UUID.
fn without_random_ids(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let id = word.trim_end();
        if uuid::Uuid::parse_str(id).is_ok() {
            word.replace(id, &uuid::Uuid::nil().to_string())
        } else {
            word.to_owned()
        }
    });
    words.collect()
}

/// Replaces each number, such as the duration of a run.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        shown.push_str(&rest[..start]);
        shown.push('N');
        rest = rest[start..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    }
    shown + rest
}

/// Creates a role assignment, and deletes its principal. Returns the id of the principal.
fn create_orphaned_assignment(workspace: &InfraWorkspace) -> String {
    let identity = "/resourceGroups/platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/orphan?api-version=2024-11-30";
    let body = json!({ "location": "eastus" });
    workspace.resource_request(Method::PUT, identity, Some(body));
    let principal = workspace.identity_object_id("platform", "orphan");
    let subscription = workspace.variable("AZURE_SUBSCRIPTION_ID");
    let reader = "acdd72a7-3385-48ef-bd42-f606fba81ae7";
    let roles = "providers/Microsoft.Authorization/roleDefinitions";
    let body = json!({ "properties": {
        "roleDefinitionId": format!("/subscriptions/{subscription}/{roles}/{reader}"),
        "principalId": principal,
        "principalType": "ServicePrincipal",
    } });
    let assignment = format!(
        "/resourceGroups/platform/providers/Microsoft.Authorization/roleAssignments/{}?api-version=2022-04-01",
        uuid::Uuid::from_u128(7)
    );
    workspace.resource_request(Method::PUT, &assignment, Some(body));
    workspace.resource_request(Method::DELETE, identity, None);
    principal
}

#[test]
fn tables_fit_the_terminal() {
    insta::assert_snapshot!("forecast", output_at_each_width("forecast", || lanyard(&FORECAST)));
    let identities = output_at_each_width("identities", || lanyard(&IDENTITIES));
    insta::assert_snapshot!("identities", identities);
    let check = ["credential", "check", "--offline", CREDENTIAL];
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/");
    let check = output_at_each_width("credential check", || lanyard(&check));
    insta::assert_snapshot!("credential_check", check.replace(directory, ""));
    let operations = ["azure", "operations", "--service", "imds"];
    let operations = output_at_each_width("azure operations", || lanyard(&operations));
    insta::assert_snapshot!("azure_operations", operations);
    // No local Azure runs in this directory.
    let nowhere = tempfile::tempdir().unwrap();
    let drills = output_at_each_width("azure drill list", || {
        let mut command = lanyard(&["azure", "drill", "list"]);
        command.env("XDG_RUNTIME_DIR", nowhere.path()).env("TMPDIR", nowhere.path());
        command
    });
    insta::assert_snapshot!("azure_drill_list", drills);
    // A shell reads these lines, whatever the width.
    let unset = |columns| {
        utf8(&run_piped(&mut lanyard(&["azure", "env", "--unset"]), Some(columns)).stdout)
    };
    assert!(WIDTHS.iter().all(|columns| unset(*columns) == unset(80)));
    insta::assert_snapshot!("azure_env", unset(80));
    let version = output_at_each_width("version", || lanyard(&["version"]));
    let version = version.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    // Debug builds know no commit.
    insta::assert_snapshot!("version", version);
}

#[test]
fn request_log_fits_the_terminal() {
    let url = "https://management.azure.com/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups?api-version=2022-12-01";
    let script = format!("curl -sS -o /dev/null '{url}'");
    let command = || lanyard(&["azure", "run", "sh", "-c", script.as_str()]);
    let log = text_at_each_width("azure run", command, both_outputs);
    let summary = "\n1 request, 0 of operations that the local Azure lacks";
    assert_eq!(log.matches(summary).count(), WIDTHS.len(), "{log}");
    insta::assert_snapshot!("azure_run", log);
}

#[test]
fn tables_of_azure_fit_the_terminal() {
    let workspace = InfraWorkspace::start();
    let rule = workspace.files().join("rule.json");
    std::fs::write(&rule, FAULT_RULE).unwrap();
    let (code, error) = workspace.run(&["azure", "fault", "add", rule.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{error}");
    let at_each_width = |arguments: &[&str]| {
        output_at_each_width(&arguments.join(" "), || workspace.piped_command(arguments))
    };
    insta::assert_snapshot!("azure_fault_list", at_each_width(&["azure", "fault", "list"]));
    insta::assert_snapshot!("plan_azure", at_each_width(&["plan", "azure", "-f", "cluster.yaml"]));
    insta::assert_snapshot!("check_azure", at_each_width(&["check", "azure"]));
    let import = at_each_width(&["import", "azure", "-f", "cluster.yaml"]);
    insta::assert_snapshot!("import_azure", import);
    insta::assert_snapshot!("azure_export", at_each_width(&["azure", "export"]));
    insta::assert_snapshot!("azure_settings_get", at_each_width(&["azure", "settings", "get"]));
    let set = ["azure", "settings", "set", "roleAssignmentLimits.inSubscription=3999"];
    insta::assert_snapshot!("azure_settings_set", at_each_width(&set));
    let principal = create_orphaned_assignment(&workspace);
    let swept = at_each_width(&["sweep", "azure", "--min-age", "0s"]);
    assert!(swept.contains(&principal), "{swept}");
    insta::assert_snapshot!("sweep_azure", without_random_ids(&swept));
}

#[test]
fn messages_about_faults_and_drills_fit_the_terminal() {
    let workspace = InfraWorkspace::start();
    std::fs::write(workspace.files().join("rule.json"), FAULT_RULE).unwrap();
    let start = ["azure", "drill", "start", "kv-throttled-at-boot"];
    let stop = ["azure", "drill", "stop"];
    let add = ["azure", "fault", "add", "rule.json"];
    let remove = ["azure", "fault", "remove", "slow-secrets"];
    let (start, stop, add, remove) = (&start[..], &stop[..], &add[..], &remove[..]);
    for (before, arguments) in [(stop, start), (start, stop), (remove, add), (add, remove)] {
        let command = || {
            // The command before it has an effect only if the command ran already.
            workspace.run(before);
            workspace.piped_command(arguments)
        };
        let name = arguments[..3].join("_");
        let shown = output_at_each_width(&name, command);
        insta::assert_snapshot!(name, shown);
    }
}

#[test]
fn plans_and_summaries_of_azure_fit_the_terminal() {
    let workspace = InfraWorkspace::start();
    let run = |arguments: &[&str]| {
        let output = run_piped(&mut workspace.piped_command(arguments), Some(60));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", utf8(&output.stderr));
        output
    };
    let apply = ["apply", "azure", "-f", "cluster.yaml"];
    let first_run = run(&apply);
    // Plans and progress go to standard error.
    let plan = utf8(&first_run.stderr);
    assert_fits(plan.split("\n[").next().unwrap(), 60, "the plan of apply azure");
    assert_fits(&utf8(&first_run.stdout), 60, "apply azure");
    let second_run = text_at_each_width(
        "apply azure",
        || workspace.piped_command(&apply),
        |output| without_numbers(&both_outputs(output)),
    );
    insta::assert_snapshot!("apply_azure", second_run);
    for stack in ["infra", "iam"] {
        let arguments = dry_run(stack);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let command = || workspace.piped_command(&arguments);
        let name = format!("destroy_{stack}_azure");
        let shown = text_at_each_width(&name, command, both_outputs);
        assert!(shown.contains("REMOVE"), "{shown}");
        insta::assert_snapshot!(name, shown);
    }
    for (stack, flag, value) in SHARED_STACKS {
        run(&["create", stack, "azure", flag, value]);
        let arguments = ["destroy", stack, "azure", flag, value, "--dry-run"];
        let command = || workspace.piped_command(&arguments);
        let name = format!("destroy_{stack}_azure");
        let shown = text_at_each_width(&name, command, both_outputs);
        assert!(shown.contains("REMOVE"), "{shown}");
        insta::assert_snapshot!(name, shown);
    }
}

#[test]
fn report_of_up_fits_the_terminal() {
    for columns in WIDTHS {
        let mut up = lanyard(&["up", "--once", "--break", "vault-role:disk"]);
        let text = utf8(&run_piped(&mut up, Some(columns)).stdout);
        assert_fits(&text, columns, "up");
        let blocks = text.matches("controlPlaneOperator").count();
        assert_eq!(blocks > 1, columns < 200, "{text}");
    }
}

#[test]
fn tables_are_complete_in_a_pipe_without_columns() {
    let text = utf8(&run_piped(&mut lanyard(&["azure", "operations"]), None).stdout);
    assert!(text.lines().any(|line| line.chars().count() > 150), "{text}");
    assert!(!text.contains('…'), "{text}");
}

#[test]
fn terminal_sets_the_width_and_the_colours() {
    let up = || lanyard(&["up", "--once"]);
    let shown = terminal::run_on_terminal(up(), 80, "xterm-256color");
    assert!(shown.contains("\x1b[32m9 of 9 components good\x1b[0m"), "{shown}");
    assert!(shown.matches("controlPlaneOperator").count() > 1, "columns follow below: {shown}");
    let mut without = up();
    without.env("NO_COLOR", "1");
    for (command, term) in [(without, "xterm-256color"), (up(), "dumb")] {
        let shown = terminal::run_on_terminal(command, 80, term);
        assert!(shown.contains("9 of 9 components good") && !shown.contains('\x1b'), "{shown}");
    }
    let workspace = InfraWorkspace::start();
    let apply = ["apply", "azure", "-f", "cluster.yaml", "--log", "debug"];
    let apply = workspace.piped_command(&apply);
    for command in [apply, lanyard(&["version", "--log", "debug"])] {
        let shown = terminal::run_on_terminal(command, 80, "dumb");
        assert!(!shown.is_empty() && !shown.contains('\x1b'), "{shown}");
    }
    let on_terminal = terminal::run_on_terminal(lanyard(&IDENTITIES), 60, "xterm");
    let piped = utf8(&run_piped(&mut lanyard(&IDENTITIES), Some(60)).stdout);
    assert_eq!(on_terminal.replace("\r\n", "\n"), piped);
}

#[test]
fn documents_have_camel_case_keys() {
    let workspace = document_workspace();
    let mut failed = Vec::new();
    for line in DOCUMENT_COMMANDS {
        let (code, document) = printed_document(&workspace, line);
        if code != Some(0) {
            failed.push((line, code, document.to_string()));
        }
        assert_camel_case(&document, line);
        let content = document.get("roleAssignments").unwrap_or(&document);
        let is_empty = content.as_array().is_some_and(Vec::is_empty) || content == &json!({});
        assert!(!is_empty, "{line} prints nothing: {document}");
    }
    let lines: Vec<_> = failed.iter().map(|(line, code, _)| (**line, *code)).collect();
    assert_eq!(lines, EXIT_WITH_1.map(|line| (line, Some(1))), "{failed:#?}");
}

/// The [`DOCUMENT_COMMANDS`] whose result is a finding.
const EXIT_WITH_1: [&str; 3] = [
    "forecast --input identities.yaml --at 2026-10-01T12:00:00Z",
    "credential check --offline credential.json",
    "up --once --rotate --break unknown-application:disk",
];

/// A workspace with the inputs of [`DOCUMENT_COMMANDS`], a fault rule and an orphaned role assignment.
fn document_workspace() -> InfraWorkspace {
    let workspace = InfraWorkspace::start();
    let file = |name: &str| workspace.files().join(name);
    std::fs::copy(HOSTED_CLUSTER_IDENTITIES, file("identities.yaml")).unwrap();
    std::fs::copy(CREDENTIAL, file("credential.json")).unwrap();
    std::fs::create_dir(file("requests")).unwrap();
    std::fs::write(file("requests/all.yaml"), include_str!("ccoctl/requests.yaml")).unwrap();
    std::fs::write(file("rule.json"), FAULT_RULE).unwrap();
    let (code, error) = workspace.run(&["azure", "fault", "add", "rule.json"]);
    assert_eq!(code, Some(0), "{error}");
    create_orphaned_assignment(&workspace);
    workspace
}

/// The exit code of one of [`DOCUMENT_COMMANDS`], and the JSON document that it prints.
fn printed_document(workspace: &InfraWorkspace, line: &str) -> (Option<i32>, Value) {
    let word = |word: &str| match word.strip_prefix('$') {
        Some(variable) => workspace.variable(variable),
        None => word.to_owned(),
    };
    let words: Vec<_> = line.split(' ').map(word).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let mut command = workspace.piped_command(&words);
    // Flags at the end of `azure run`, and its standard output, belong to the other command.
    let is_azure_run = line.starts_with("azure run ");
    if !is_azure_run {
        command.args(["--output", "json"]);
    }
    let output = command.output().unwrap();
    let document = if is_azure_run { &output.stderr } else { &output.stdout };
    let parsed = serde_json::from_slice(document);
    assert!(parsed.is_ok(), "{line}: {parsed:?}: {}", utf8(&output.stderr));
    (output.status.code(), parsed.unwrap())
}

/// The command that shows what would be removed of a stack of the cluster.
fn dry_run(stack: &str) -> Vec<String> {
    InfraWorkspace::cluster_arguments(&["destroy", stack, "azure", "--dry-run"])
}

/// Fails for keys that are not camelCase, except names of environment variables, of tags and of identities, and
/// properties of Azure resources, which have Azure's names.
fn assert_camel_case(value: &Value, of: &str) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_camel_case = key.starts_with(|c: char| c.is_ascii_lowercase())
                    && key.chars().all(|c| c.is_ascii_alphanumeric());
                let field = of.rsplit('.').next().unwrap_or_default();
                let is_data = of == "azure env.set"
                    || of.starts_with("azure export.resources.properties")
                    || ["tags", "userAssignedIdentities"].contains(&field);
                assert!(is_camel_case || is_data, "{of}: `{key}`");
                assert_camel_case(value, &format!("{of}.{key}"));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| assert_camel_case(item, of)),
        _ => {}
    }
}

#[test]
fn completions_and_manual_pages_come_from_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = run_piped(&mut lanyard(&["completions", shell]), None);
        let script = utf8(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        for word in ["forecast", "within", "snapshot"] {
            assert!(script.contains(word), "{word} is not in the script of {shell}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut man = lanyard(&["man", "--directory"]);
    man.arg(directory.path().join("man1"));
    assert_eq!(run_piped(&mut man, None).status.code(), Some(0));
    let page =
        |name: &str| std::fs::read_to_string(directory.path().join("man1").join(name)).unwrap();
    assert!(page("lanyard.1").contains("forecast"));
    assert!(page("lanyard-azure-run.1").contains("Examples:"));
}

#[test]
fn version_is_a_document_with_the_commit() {
    let output = run_piped(&mut lanyard(&["version", "-o", "json"]), None);
    let version: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version.as_object().unwrap().contains_key("commit"), "{version}");
}

#[test]
fn misspelled_log_filter_is_refused() {
    let output = run_piped(&mut lanyard(&["version", "--log", "inof"]), None);
    assert_eq!(output.status.code(), Some(2));
    let error = utf8(&output.stderr);
    assert!(
        error.contains("`inof` is not one of off, error, warn, info, debug and trace"),
        "{error}"
    );
}

#[cfg(feature = "node")]
#[test]
fn node_without_a_class_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut node = lanyard(&["node", "--nodeid", "n", "--classes"]);
    let output = run_piped(node.arg(file.path()), None);
    let error = utf8(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("it contains no SecretProviderClass"), "{error}");
}
