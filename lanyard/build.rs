//! Tells `lanyard version` the commit of the source: that of `LANYARD_COMMIT`, or in release builds that of the
//! Git repository. Debug builds have none, because each commit would compile the program again.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=LANYARD_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let chosen = std::env::var_os("LANYARD_COMMIT").and_then(|commit| commit.into_string().ok());
    let is_release = std::env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    let commit = chosen.or_else(|| is_release.then(commit_of_repository).flatten());
    println!("cargo::rustc-env=LANYARD_COMMIT={}", commit.unwrap_or_default());
}

fn commit_of_repository() -> Option<String> {
    // The log of HEAD changes with each commit and each checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
