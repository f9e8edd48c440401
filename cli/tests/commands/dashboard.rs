//! The pages of `callboard serve` in a browser, with a server that is killed.

use crate::browser::Browser;
use crate::skipping::skip;
use crate::support::agents::add_python_agent;
use crate::support::project::Project;
use crate::support::serving::Serving;

const ASKS: &str = r#"
tell(type="ask", id=1, question="Which port?")
end(turn, hear()["value"])
"#;

#[test]
fn a_run_is_watched_on_its_page_while_the_server_is_killed_and_comes_back() {
    let Some(mut browser) = Browser::start() else { return skip("there is no Chromium") };
    let project = Project::new();
    add_python_agent(&project.folder, "asks", ASKS);
    let serving = Serving::start(&project);
    let address = serving.address().to_owned();
    let run = project.callboard(&["send", "asks", "find a port"]).out.trim_end().to_owned();
    let link = project.callboard(&["sign-in"]).out.trim_end().to_owned();
    browser.opens(&link);
    browser.until("Page.loadEventFired");
    browser.opens(&format!("{}/runs", link.split_once("/sign-in").unwrap().0));
    browser.value("document.querySelector('.runs a.task').click()");
    browser.until("Page.loadEventFired");
    browser.sees("document.querySelector('#run-state')?.textContent === 'Live'");
    let badge = "document.querySelector('.under .kind')?.textContent";
    browser.sees(&format!("{badge} === 'Waits for an answer'"));

    // It is killed, as by the system.
    drop(serving);
    browser.sees("document.querySelector('#run-state').textContent.startsWith('Not connected')");
    let _serving = Serving::start_with(&project, &["--listen", &address]);
    browser.sees("document.querySelector('#run-state').textContent === 'Live'");
    let answered = project.callboard(&["answer", &run, "8080"]);
    assert_eq!(answered.code, Some(0), "{}", answered.error);
    browser.sees(&format!("{badge} === 'Finished'"));
    browser.sees("document.querySelector('main').innerText.includes('8080')");
}
