//! Runs the binary's `lanyard azure` and `lanyard credential check` commands against each other.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

#[path = "azure/azure_serve_process.rs"]
mod azure_serve_process;

use azure_serve_process::AzureServeProcess;

fn lanyard_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanyard"));
    for variable in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"] {
        command.env_remove(variable);
    }
    command
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a shell script in its own local Azure.
fn run_shell_in_local_azure(script: &str) -> Output {
    lanyard_command().args(["azure", "run", "--", "sh", "-c", script]).output().unwrap()
}

#[test]
fn azure_run_returns_the_exit_code_of_the_command() {
    let output =
        lanyard_command().args(["azure", "run", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let missing =
        lanyard_command().args(["azure", "run", "--", "no-such-command"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(utf8(&missing.stderr).contains("no-such-command"));
}

#[test]
fn command_in_azure_run_gets_exports_and_prints_a_request_log() {
    let script = r"env | grep -c -E '^(HTTPS_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)='";
    let output = run_shell_in_local_azure(script);
    assert_eq!(utf8(&output.stdout).trim(), "3");
    assert!(utf8(&output.stderr).contains("no request reached the local Azure"));
}

#[test]
fn state_survives_a_kill_of_azure_serve() {
    let state = tempfile::tempdir().unwrap();
    let first = AzureServeProcess::start(lanyard_command(), state.path());
    let exports =
        lanyard_command().args(["azure", "env", "--state"]).arg(state.path()).output().unwrap();
    let shell = utf8(&exports.stdout);
    assert!(
        shell.contains(&format!("export HTTPS_PROXY='{}'", first.session_text("proxy"))),
        "{shell}"
    );
    let ca = std::fs::read_to_string(first.session_text("caFile")).unwrap();
    drop(first);

    let none =
        lanyard_command().args(["azure", "env", "--state"]).arg(state.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(3));
    assert!(utf8(&none.stderr).contains("lanyard azure serve"));

    let second = AzureServeProcess::start(lanyard_command(), state.path());
    assert_eq!(std::fs::read_to_string(second.session_text("caFile")).unwrap(), ca);
    drop(second);

    let other = state.path().join("other.yaml");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hostedcluster.yaml");
    let text = std::fs::read_to_string(example).unwrap();
    std::fs::write(&other, text.replace("location: westeurope", "location: eastus")).unwrap();
    let refused = lanyard_command()
        .args(["azure", "serve", "--listen", "127.0.0.1:0", "--state"])
        .arg(state.path())
        .arg("-f")
        .arg(other)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "the cluster differs from the saved state");
}

#[test]
fn azure_run_needs_no_dashes_before_the_command() {
    let run = |arguments: &[&str]| {
        lanyard_command().args(["azure", "run"]).args(arguments).output().unwrap()
    };
    let output = run(&["--no-request-log", "echo", "-n", "--help"]);
    assert_eq!((output.status.code(), &*utf8(&output.stdout)), (Some(0), "--help"));
    let output = run(&["--unknown-flag", "echo"]);
    assert_eq!(output.status.code(), Some(2), "{}", utf8(&output.stderr));
}

#[test]
fn request_log_is_printed_as_json() {
    let script =
        "curl -sS -o /dev/null https://management.azure.com/subscriptions?api-version=2022-12-01";
    let output = lanyard_command()
        .args(["azure", "run", "--output", "json", "sh", "-c", script])
        .output()
        .unwrap();
    let log: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(log[0]["apiVersion"], "2022-12-01", "{log}");
    assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
}

#[test]
fn credential_is_read_from_standard_input_and_from_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let check = |argument: &std::ffi::OsStr, input: &str| {
        let mut command = lanyard_command();
        command.args(["credential", "check", "--offline", "--output", "json"]).arg(argument);
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), report)
    };
    let document = r#"{"clientId": "x"}"#;
    let (code, report) = check("-".as_ref(), document);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["file"], "-");
    assert_eq!(report["inspection"]["findings"][0]["field"], "client_id");
    assert!(report["inspection"]["findings"][0]["nextStep"].is_string(), "{report}");

    assert_eq!(check(directory.path().as_os_str(), "").0, Some(2), "there is no file");
    std::fs::write(directory.path().join("one"), document).unwrap();
    std::fs::write(directory.path().join("two"), document).unwrap();
    std::fs::write(directory.path().join(".hidden"), document).unwrap();
    let (code, reports) = check(directory.path().as_os_str(), "");
    assert_eq!(code, Some(1), "{reports}");
    let files: Vec<_> =
        reports.as_array().unwrap().iter().map(|it| it["file"].as_str().unwrap()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files[0].ends_with("/one") && files[1].ends_with("/two"), "{files:?}");

    std::os::unix::fs::symlink("missing", directory.path().join("broken")).unwrap();
    let (code, reports) = check(directory.path().as_os_str(), "");
    assert_eq!(code, Some(1), "{reports}");
    let (broken, one) = (&reports[0], &reports[1]);
    assert!(broken["file"].as_str().unwrap().ends_with("/broken"), "{reports}");
    assert_eq!(broken["ok"], false, "{broken}");
    assert_eq!(broken["token"]["outcome"], "not-tried", "{broken}");
    assert!(broken["readError"].as_str().unwrap().contains("No such file"), "{broken}");
    assert!(one["inspection"]["findings"].is_array(), "an unreadable file hides no other: {one}");
}

#[test]
fn shell_in_azure_run_reaches_entra_through_the_proxy() {
    // The script parses the response of the control API with shell tools, so the test uses no client of this
    // project.
    let script = r#"
        test_clients=$(curl -sS -H 'x-lanyard-control: 1' "$LANYARD_AZURE_CONTROL/test-clients")
        value() { printf '%s' "$test_clients" | tr ',{}' '\n' | grep "\"$1\":" | head -n 1 | sed 's/.*: *"\(.*\)"/\1/'; }
        tenant=$(value tenant)
        curl -sS -o /dev/null -w '%{http_code}' \
            "https://login.microsoftonline.com/$tenant/v2.0/.well-known/openid-configuration"
    "#;
    let output = run_shell_in_local_azure(script);
    assert_eq!(utf8(&output.stdout), "200", "{}", utf8(&output.stderr));
    let log = utf8(&output.stderr);
    assert!(log.contains("login.microsoftonline.com"), "{log}");
}

#[test]
fn non_loopback_address_requires_allow_remote() {
    let output =
        lanyard_command().args(["azure", "serve", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(utf8(&output.stderr).contains("hint:"));
}

#[test]
fn credential_check_lists_problems_with_hints() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credential");
    std::fs::write(&file, r#"{"clientId": "x", "tenant_id": 7}"#).unwrap();
    let output = lanyard_command().args(["credential", "check"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report = utf8(&output.stdout);
    for expected in ["client_id", "tenant_id", "client_secret", "hint:", "not good"] {
        assert!(report.contains(expected), "{expected} is not in\n{report}");
    }

    let absent = directory.path().join("absent");
    let output = lanyard_command().args(["credential", "check"]).arg(absent).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn credential_check_prints_the_authority_without_the_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credential");
    let check = |authority: &str| {
        let document = serde_json::json!({
            "client_id": "22222222-2222-4222-8222-222222222222",
            "tenant_id": "contoso.onmicrosoft.com",
            "authentication_endpoint": authority,
        });
        std::fs::write(&file, document.to_string()).unwrap();
        let mut command = lanyard_command();
        command.args(["credential", "check", "--offline"]).arg(&file).env_remove("COLUMNS");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", utf8(&output.stderr));
        utf8(&output.stdout)
    };
    let report = check("https://login.microsoftonline.com/contoso.onmicrosoft.com/");
    let expected = "error: authentication_endpoint: cannot be used: the authority contains a tenant \
                    or a token endpoint; write https://login.microsoftonline.com/\n  \
                    hint: leave out the tenant and everything behind it\n";
    assert!(report.contains(expected), "{report}");
    let report = check("https://login.microsoftonline.com/");
    assert!(!report.contains("authentication_endpoint:"), "{report}");
}

#[test]
fn credential_check_rejects_a_file_that_is_longer_than_a_credential() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credential");
    for (length, code) in [(1 << 20, Some(1)), ((1 << 20) + 1, Some(2))] {
        std::fs::write(&file, " ".repeat(length)).unwrap();
        for input in [file.as_os_str(), "-".as_ref()] {
            let mut command = lanyard_command();
            command.args(["credential", "check", "--offline"]).arg(input);
            let output = command.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
            let error = utf8(&output.stderr);
            assert_eq!(output.status.code(), code, "{input:?} {length}: {error}");
            let is_too_long = error.contains("cannot be read: it has more than 1048576 bytes");
            assert_eq!(is_too_long, code == Some(2), "{error}");
        }
    }
}

#[test]
fn render_output_is_deterministic() {
    let directory = tempfile::tempdir().unwrap();
    let render = || {
        let reader = ["--vault-reader", "11111111-2222-3333-4444-555555555555"];
        lanyard_command().arg("render").args(reader).output().unwrap().stdout
    };
    let printed = render();
    assert_eq!(printed, render());
    let render_to = |output: &Path| {
        let rendered = lanyard_command().args(["render", "--output-dir"]).arg(output).output();
        assert_eq!(rendered.unwrap().status.code(), Some(0));
        let files = std::fs::read_dir(output).unwrap().map(|file| file.unwrap().path());
        files.collect::<Vec<_>>()
    };
    let output = directory.path().join("output");
    let files = render_to(&output);
    assert_eq!(files.len(), utf8(&printed).matches("\napiVersion:").count() + 1);
    // A symbolic link is replaced, and its target stays.
    let target = directory.path().join("target");
    std::fs::write(&target, "unchanged").unwrap();
    std::fs::remove_file(&files[0]).unwrap();
    std::os::unix::fs::symlink(&target, &files[0]).unwrap();
    assert_eq!(render_to(&output).len(), files.len());
    assert!(!std::fs::symlink_metadata(&files[0]).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "unchanged");
}

/// Writes a program `az` that appends its arguments and the names of its credentials to a file, and returns a
/// value of PATH with it.
#[expect(clippy::disallowed_methods, reason = "the commands of the script need PATH")]
fn install_fake_azure_cli(directory: &Path, exit_code: u8) -> String {
    let script = format!(
        "#!/bin/sh\necho \"$@\" > {0}/arguments\nenv | grep ^AZURE_ | sort > {0}/variables\n\
         echo 'no subscriptions' >&2\nexit {exit_code}\n",
        directory.display()
    );
    let program = directory.join("az");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", directory.display(), std::env::var("PATH").unwrap())
}

#[test]
fn azure_run_with_login_signs_the_azure_cli_in_and_sets_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let path = install_fake_azure_cli(directory.path(), 0);
    let arguments_of = |login: &str| {
        let script = "echo $AZURE_CLIENT_ID $AZURE_SUBSCRIPTION_ID";
        let output = lanyard_command()
            .args(["azure", "run", "--no-request-log", "--seed", "test", login, "--", "sh", "-c"])
            .arg(script)
            .env("PATH", &path)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
        let arguments = std::fs::read_to_string(directory.path().join("arguments")).unwrap();
        (arguments, utf8(&output.stdout))
    };
    let (arguments, ids) = arguments_of("--login");
    assert!(arguments.contains("--username admin@lanyard.test --password "), "{arguments}");
    let client = ids.split(' ').next().unwrap();
    let (arguments, same_ids) = arguments_of("--login=service-principal");
    assert!(
        arguments.contains(&format!("--service-principal --username {client} ")),
        "{arguments}"
    );
    assert_eq!(same_ids, ids, "the same seed gives the same ids");
    let variables = std::fs::read_to_string(directory.path().join("variables")).unwrap();
    assert!(variables.contains("AZURE_CONFIG_DIR="), "{variables}");
}

#[test]
fn azure_run_fails_if_az_login_fails_and_ignores_a_missing_azure_cli() {
    let directory = tempfile::tempdir().unwrap();
    let run = |path: &str| {
        let mut command = lanyard_command();
        command.args(["azure", "run", "--no-request-log", "--login", "--", "/bin/true"]);
        command.env("PATH", path).output().unwrap()
    };
    let failed = run(&install_fake_azure_cli(directory.path(), 1));
    assert_eq!(failed.status.code(), Some(3));
    assert!(utf8(&failed.stderr).contains("no subscriptions"), "{}", utf8(&failed.stderr));
    assert_eq!(run("/nonexistent").status.code(), Some(0));
}

#[test]
fn azure_login_signs_in_to_the_running_local_azure() {
    let (state, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = install_fake_azure_cli(programs.path(), 0);
    let command = |name: &str| {
        let mut command = lanyard_command();
        command.args(["azure", name, "--state"]).arg(state.path()).env("PATH", &path);
        command
    };
    let none = command("login").output().unwrap();
    assert_eq!(none.status.code(), Some(3));
    let first = AzureServeProcess::start(lanyard_command(), state.path());
    let output = command("login").output().unwrap();
    assert_eq!(utf8(&output.stdout).trim(), "the Azure CLI is signed in as admin@lanyard.test");
    let exports = utf8(&command("env").output().unwrap().stdout);
    assert!(!exports.contains("AZURE_CLIENT_SECRET"), "{exports}");
    drop(first);

    let mut serve = lanyard_command();
    serve.env("PATH", &path);
    let _second = AzureServeProcess::start_with(serve, state.path(), &["--login"]);
    let exports = utf8(&command("env").output().unwrap().stdout);
    assert!(exports.contains("export AZURE_CLIENT_SECRET='"), "{exports}");
}

#[test]
fn snapshot_is_saved_privately_and_restored() {
    let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = files.path().join("snapshot.json");
    let run = |arguments: &[&str]| {
        let mut command = lanyard_command();
        command.arg("azure").args(arguments).arg("--state").arg(state.path());
        command.current_dir(files.path()).output().unwrap()
    };
    assert_eq!(run(&["snapshot", "save", "snapshot.json"]).status.code(), Some(3), "none runs");
    let _process = AzureServeProcess::start_with(lanyard_command(), state.path(), &["--seed", "a"]);
    let saved = run(&["snapshot", "save", "snapshot.json"]);
    assert_eq!(saved.status.code(), Some(0), "{}", utf8(&saved.stderr));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let export = |arguments: &[&str]| -> serde_json::Value {
        let output = run(&[&["export", "--output", "json"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let secrets = |export: &serde_json::Value| export["vaults"][0]["secrets"].clone();
    let before = export(&["--secrets"]);
    assert!(secrets(&before)[0]["value"].is_string());
    assert!(secrets(&export(&[]))[0]["value"].is_null());

    let text = std::fs::read_to_string(&file).unwrap();
    let renamed = text.replace("admin@lanyard.test", "root@lanyard.test");
    std::fs::write(files.path().join("renamed.json"), renamed).unwrap();
    assert_eq!(run(&["snapshot", "restore", "renamed.json"]).status.code(), Some(0));
    assert_eq!(export(&[])["users"][0]["userPrincipalName"], "root@lanyard.test");
    let credentials = std::fs::read_to_string(state.path().join("credentials.json")).unwrap();
    assert!(credentials.contains("root@lanyard.test"), "{credentials}");
    let mut exports = lanyard_command();
    exports.args(["azure", "snapshot", "restore", "snapshot.json"]).current_dir(files.path());
    let environment = run(&["env", "--output", "json"]).stdout;
    let environment: serde_json::Value = serde_json::from_slice(&environment).unwrap();
    for variable in ["LANYARD_AZURE_CONTROL", "SSL_CERT_FILE"] {
        exports.env(variable, environment["set"][variable].as_str().unwrap());
    }
    assert_eq!(exports.output().unwrap().status.code(), Some(0));
    assert_eq!(secrets(&export(&["--secrets"])), secrets(&before));
    let credentials = std::fs::read_to_string(state.path().join("credentials.json")).unwrap();
    assert!(credentials.contains("admin@lanyard.test"), "the exports select the session");

    let mut without: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(without["azure"]["identityRegistry"]["testClients"].take().is_object());
    std::fs::write(files.path().join("without.json"), without.to_string()).unwrap();
    let restored = run(&["snapshot", "restore", "without.json"]);
    assert_eq!(restored.status.code(), Some(0), "{}", utf8(&restored.stderr));
    assert!(!state.path().join("credentials.json").exists());

    std::fs::write(&file, "{}").unwrap();
    let refused = run(&["snapshot", "restore", "snapshot.json"]);
    assert_eq!(refused.status.code(), Some(2));
    let error = utf8(&refused.stderr);
    assert!(error.contains("not a snapshot of `lanyard azure snapshot save`"), "{error}");
}

#[test]
fn fault_rules_and_drills_are_changed_one_by_one() {
    let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |arguments: &[&str]| {
        let mut command = lanyard_command();
        command.arg("azure").args(arguments).arg("--state").arg(state.path());
        command.current_dir(files.path()).output().unwrap()
    };
    let arguments = ["--drill", "kv-throttled-at-boot"];
    let first = AzureServeProcess::start_with(lanyard_command(), state.path(), &arguments);
    drop(first);
    let _second = AzureServeProcess::start_with(lanyard_command(), state.path(), &arguments);
    let listed = utf8(&run(&["drill", "list"]).stdout);
    assert!(listed.starts_with("DRILL "), "{listed}");
    assert!(listed.contains("\nrunning: kv-throttled-at-boot, started at "), "{listed}");
    assert_eq!(run(&["drill", "stop"]).status.code(), Some(0));
    assert!(utf8(&run(&["drill", "list"]).stdout).ends_with("\nno drill is running\n"));

    let rule = |name: &str, every: u32| serde_json::json!({ "name": name, "every": every, "effect": { "type": "reset" } });
    let rules = serde_json::json!([rule("one", 1), rule("two", 0)]);
    std::fs::write(files.path().join("invalid.json"), rules.to_string()).unwrap();
    let refused = run(&["fault", "add", "invalid.json"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(utf8(&refused.stderr).contains("invalid.json: `every` must be at least 1"));
    let rules = serde_json::json!([rule("a/b?c d", 1), rule("three", 1)]);
    std::fs::write(files.path().join("rules.json"), rules.to_string()).unwrap();
    let added = run(&["fault", "add", "rules.json"]);
    assert_eq!(utf8(&added.stdout), "added a/b?c d\nadded three\n");
    for name in ["", ".", ".."] {
        assert_eq!(run(&["fault", "remove", name]).status.code(), Some(2), "{name}");
    }
    let removed = run(&["fault", "remove", "a/b?c d"]);
    assert_eq!(removed.status.code(), Some(0), "{}", utf8(&removed.stderr));
    let missing = run(&["fault", "remove", "one"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(utf8(&missing.stderr).contains("`one`"), "{}", utf8(&missing.stderr));
    assert_eq!(utf8(&run(&["fault", "remove", "--all"]).stdout), "removed three\n");
}
