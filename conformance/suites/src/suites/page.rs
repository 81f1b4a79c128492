//! The web page of the local Azure in a headless Chromium, operated with the keyboard.

mod browser;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) use self::browser::BrowserError;
use self::browser::{Browser, ColorScheme};
use super::{expect_equal, failed_with_causes};
use crate::local_azure::LocalAzure;

/// The tabs of the page, by the end of their ids.
const TABS: [&str; 3] = ["resources", "identities", "requests"];
/// The widths of a phone and of a laptop, in CSS pixels.
const WIDTHS: [u32; 2] = [360, 1280];

/// What the suite needs.
#[derive(Debug)]
pub(crate) struct PageSuiteInputs {
    pub(crate) azure: LocalAzure,
    /// Chromium or its headless shell.
    pub(crate) chromium_program: PathBuf,
    /// The script of axe-core, which checks accessibility.
    pub(crate) axe_script: PathBuf,
    /// The directory for screenshots.
    pub(crate) screenshots: PathBuf,
    pub(crate) runtime: Arc<Runtime>,
}

/// The page in a browser. The trials share it.
struct PageFixture {
    browser: Mutex<Browser>,
    inputs: PageSuiteInputs,
}

type PageCheck = fn(&PageFixture, &mut Browser) -> Result<(), Failed>;

const CHECKS: [(&str, PageCheck); 9] = [
    ("tree_contains_every_subscription_and_resource", check_tree_content),
    ("tree_is_operated_with_the_keyboard", check_tree_keys),
    ("tabs_are_operated_with_the_keyboard", check_tab_keys),
    ("identities_show_role_assignments_and_federated_credentials", check_identities),
    ("new_request_appears_without_a_reload", check_live_requests),
    ("clock_shows_the_emulated_time", check_clock),
    ("page_shows_no_secret", check_secrets),
    ("light_and_dark_pages_are_accessible_at_every_width", check_accessibility),
    ("page_reports_no_errors", check_errors),
];

/// Starts the browser and returns the trials.
pub(crate) fn trials(inputs: PageSuiteInputs) -> Result<Vec<Trial>, BrowserError> {
    let profile = inputs.azure.directory().join("chromium");
    let browser = Mutex::new(Browser::start(&inputs.chromium_program, &profile)?);
    let fixture = Arc::new(PageFixture { browser, inputs });
    Ok(CHECKS
        .into_iter()
        .map(|(name, check)| {
            let fixture = Arc::clone(&fixture);
            Trial::test(format!("page::{name}"), move || {
                let mut browser = fixture.browser.lock();
                fixture.open(&mut browser).map_err(failed_with_causes)?;
                check(&fixture, &mut browser)
            })
        })
        .collect())
}

impl PageFixture {
    /// Reloads the page and waits until it shows the state.
    fn open(&self, browser: &mut Browser) -> Result<(), BrowserError> {
        browser.set_viewport(WIDTHS[1])?;
        browser.open(&format!("{}/", self.inputs.azure.proxy_url()))?;
        browser.wait_until("document.querySelector('[role=treeitem]') !== null")
    }

    /// Reads from the control API.
    fn control(&self, path: &str) -> Result<Value, Failed> {
        let reply = self.inputs.runtime.block_on(self.inputs.azure.control_api().get(path));
        reply.map_err(failed_with_causes)
    }
}

fn check_tree_content(fixture: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    let export = fixture.control("export")?;
    let count = |list: &str| export[list].as_array().map_or(0, Vec::len);
    let expected = count("subscriptions") + count("resources");
    let items = browser.evaluate("document.querySelectorAll('[role=treeitem]').length")?;
    expect_equal("tree items", items.as_u64(), u64::try_from(expected).ok())?;
    let groups = browser.evaluate(
        "[...document.querySelectorAll('[aria-level=\"2\"]')].every((item) => \
           item.innerText.includes('Resource group'))",
    )?;
    expect_equal("resource groups are below subscriptions", groups, json!(true))
}

/// The name of the focused tree item, and its state.
const FOCUSED_ITEM: &str = "(() => { const item = document.activeElement; return item.role === 'treeitem' \
     ? [item.node.name, item.ariaExpanded, Number(item.ariaLevel), item.ariaSelected] : []; })()";

fn check_tree_keys(_: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    browser.evaluate("document.getElementById('tab-resources').focus()")?;
    browser.press("Tab")?;
    let subscription = browser.evaluate(FOCUSED_ITEM)?;
    expect_equal("focus after Tab", &subscription[2], &json!(1))?;
    expect_equal("first level", &subscription[1], &json!("true"))?;
    browser.press("ArrowDown")?;
    let group = browser.evaluate(FOCUSED_ITEM)?;
    expect_equal("level after ArrowDown", &group[2], &json!(2))?;
    expect_equal("group is collapsed", &group[1], &json!("false"))?;
    browser.press("ArrowRight")?;
    expect_equal("ArrowRight expands", &browser.evaluate(FOCUSED_ITEM)?[1], &json!("true"))?;
    browser.press("ArrowRight")?;
    expect_equal("ArrowRight enters", &browser.evaluate(FOCUSED_ITEM)?[2], &json!(3))?;
    browser.press("Enter")?;
    let resource = browser.evaluate(FOCUSED_ITEM)?;
    expect_equal("Enter selects", &resource[3], &json!("true"))?;
    let details = browser.evaluate("document.getElementById('details-name').textContent")?;
    expect_equal("details", &details, &resource[0])?;
    browser.press("ArrowLeft")?;
    expect_equal("ArrowLeft leaves", &browser.evaluate(FOCUSED_ITEM)?[0], &group[0])?;
    browser.press("ArrowLeft")?;
    expect_equal("ArrowLeft collapses", &browser.evaluate(FOCUSED_ITEM)?[1], &json!("false"))?;
    browser.press("Home")?;
    expect_equal("Home", &browser.evaluate(FOCUSED_ITEM)?[0], &subscription[0])?;
    browser.press("End")?;
    browser.press("ArrowDown")?;
    let last = browser.evaluate(FOCUSED_ITEM)?;
    browser.press("ArrowUp")?;
    if browser.evaluate(FOCUSED_ITEM)? == last {
        return Err("ArrowUp does not leave the last item".into());
    }
    Ok(())
}

fn check_tab_keys(_: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    browser.evaluate("document.getElementById('tab-resources').focus()")?;
    for (key, expected) in
        [("ArrowRight", TABS[1]), ("End", TABS[2]), ("ArrowRight", TABS[0]), ("ArrowLeft", TABS[2])]
    {
        browser.press(key)?;
        let shown = browser.evaluate(
            "[document.activeElement.id, [...document.querySelectorAll('[role=tabpanel]')]\
               .filter((panel) => panel.checkVisibility()).map((panel) => panel.id)]",
        )?;
        let panel = format!("panel-{expected}");
        expect_equal(key, shown, json!([format!("tab-{expected}"), [panel]]))?;
    }
    Ok(())
}

fn check_identities(fixture: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    select_tab(browser, "identities")?;
    let test_clients = fixture.control("test-clients")?;
    let export = fixture.control("export")?;
    let cards = browser
        .evaluate("[...document.querySelectorAll('.identity')].map((card) => card.innerText)")?;
    let cards: Vec<&str> =
        cards.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let of_client = |client: &Value| {
        let client = client.as_str().unwrap_or("missing");
        let card = cards.iter().find(|card| card.contains(client));
        card.copied().ok_or_else(|| Failed::from(format!("no identity has the id {client}")))
    };
    let count = |list: &str| export[list].as_array().map_or(0, Vec::len);
    let expected = count("users") + count("groups") + count("servicePrincipals");
    expect_equal("identities", cards.len(), expected)?;
    let federated = of_client(&test_clients["federated"]["clientId"])?;
    for text in ["issuer", "subject"].map(|field| test_clients["federated"][field].as_str()) {
        let text = text.unwrap_or("missing");
        if !federated.contains(text) {
            return Err(format!("`{text}` is missing in: {federated}").into());
        }
    }
    let owner = of_client(&test_clients["secret"]["clientId"])?;
    for text in ["Owner", "/subscriptions/", "1 client secret"] {
        if !owner.contains(text) {
            return Err(format!("`{text}` is missing in: {owner}").into());
        }
    }
    browser.evaluate(
        "(() => { const filter = document.getElementById('identity-filter'); \
         filter.value = 'system:serviceaccount'; filter.dispatchEvent(new Event('input')); })()",
    )?;
    let filtered = browser.evaluate("document.querySelectorAll('.identity').length")?;
    if filtered.as_u64().is_none_or(|count| {
        count == 0 || usize::try_from(count).is_ok_and(|count| count >= cards.len())
    }) {
        return Err(format!("{filtered} of {} identities pass the filter", cards.len()).into());
    }
    Ok(())
}

fn check_live_requests(fixture: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    select_tab(browser, "requests")?;
    let path = "/metadata/request-of-the-page-suite";
    let shows = format!("document.getElementById('requests').innerText.includes('{path}')");
    expect_equal("before the request", browser.evaluate(&shows)?, json!(false))?;
    let url = format!("{}{path}", fixture.inputs.azure.proxy_url());
    let client = reqwest::Client::builder().no_proxy().build()?;
    let status = fixture.inputs.runtime.block_on(client.get(url).send())?.status();
    browser.wait_until(&shows)?;
    let row = browser.evaluate("document.querySelector('#requests tr').innerText")?;
    let row = row.as_str().unwrap_or_default();
    if row.contains(status.as_str()) {
        Ok(())
    } else {
        Err(format!("no {status} in: {row}").into())
    }
}

fn check_clock(fixture: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    let control_api = fixture.inputs.azure.control_api();
    let stop = json!({ "stopped": true, "advanceSeconds": 86_400 });
    let reply = fixture.inputs.runtime.block_on(control_api.post::<Value>("clock", &stop));
    let now = reply.map_err(failed_with_causes)?["now"].as_str().unwrap_or_default().to_owned();
    let text = format!("{} {} UTC", now.get(..10).unwrap_or(""), now.get(11..19).unwrap_or(""));
    let found = browser.wait_until(&format!(
        "document.getElementById('facts').innerText.includes('{text} (stopped)')"
    ));
    let resume = json!({ "stopped": false });
    let resumed = fixture.inputs.runtime.block_on(control_api.post::<Value>("clock", &resume));
    resumed.map_err(failed_with_causes)?;
    Ok(found?)
}

fn check_secrets(fixture: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    let test_clients = fixture.control("test-clients")?;
    let html = browser.evaluate("document.documentElement.outerHTML")?;
    let html = html.as_str().unwrap_or_default();
    let secrets = ["/secret/clientSecret", "/user/password", "/identityHeader"];
    for pointer in secrets {
        let secret = test_clients.pointer(pointer).and_then(Value::as_str).ok_or(pointer)?;
        if secret.len() < 8 || html.contains(secret) {
            return Err(format!("the page contains {pointer}").into());
        }
    }
    expect_equal("private keys", html.contains("PRIVATE KEY"), false)
}

/// Checks with axe-core, takes screenshots, and checks that nothing is wider than the window.
fn check_accessibility(fixture: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    let PageSuiteInputs { axe_script, screenshots, .. } = &fixture.inputs;
    fs::create_dir_all(screenshots)?;
    browser.evaluate(&fs::read_to_string(axe_script)?)?;
    browser.evaluate(
        "[...document.querySelectorAll('[aria-level=\"2\"]')].slice(0, 3).forEach((item) => item.click())",
    )?;
    let mut backgrounds = Vec::new();
    for scheme in [ColorScheme::Light, ColorScheme::Dark] {
        browser.set_color_scheme(scheme)?;
        backgrounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor")?);
        for width in WIDTHS {
            browser.set_viewport(width)?;
            for tab in TABS {
                select_tab(browser, tab)?;
                let what = format!("{tab}-{}-{width}", scheme.name());
                browser.save_screenshot(&screenshots.join(format!("{what}.png")))?;
                expect_no_violations(browser, &what)?;
                let overflow =
                    browser.evaluate("document.documentElement.scrollWidth > innerWidth")?;
                expect_equal(&format!("{what} is wider than the window"), overflow, json!(false))?;
            }
        }
    }
    browser.set_color_scheme(ColorScheme::Light)?;
    if backgrounds[0] == backgrounds[1] {
        return Err(format!("light and dark have the background {}", backgrounds[0]).into());
    }
    Ok(())
}

fn expect_no_violations(browser: &mut Browser, what: &str) -> Result<(), Failed> {
    let violations = browser.evaluate(
        "axe.run().then(({ violations, passes }) => passes.length === 0 ? ['axe checked nothing'] : \
           violations.flatMap((rule) => rule.nodes.map((node) => \
             `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`)))",
    )?;
    match violations.as_array() {
        Some(list) if list.is_empty() => Ok(()),
        _ => Err(format!("{what}: {violations:#}").into()),
    }
}

fn check_errors(_: &PageFixture, browser: &mut Browser) -> Result<(), Failed> {
    for tab in TABS {
        select_tab(browser, tab)?;
    }
    let errors = browser.errors();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n").into()) }
}

fn select_tab(browser: &mut Browser, tab: &str) -> Result<(), BrowserError> {
    browser.evaluate(&format!("document.getElementById('tab-{tab}').click()")).map(drop)
}

/// The directory for screenshots: beside the program.
pub(crate) fn screenshot_directory(lanyard: &Path) -> PathBuf {
    lanyard.parent().unwrap_or(Path::new(".")).join("page-screenshots")
}
