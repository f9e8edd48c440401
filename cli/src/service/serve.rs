//! `callboard serve`: a board that stays up, with the agents of a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use callboard::env::Env;
use callboard::messages::{BoardInfo, Pending, visible};
use callboard::runtime::{BuildError, Unfinished};
use callboard::storage::StorageError;
use callboard::supervision::tree::EndReason;
use callboard::{AgentSpec, Callboard};
use callboard_agents::{hide_from_programs, tools};
use callboard_channels::email::EmailChannel;
use callboard_channels::matrix::{AgentRooms, MatrixChannel};
use callboard_channels::telegram::TelegramChannel;
use callboard_private::FolderError;
use callboard_server::private::{ClientError, ListenError};
use callboard_server::{AgentFiles, DashboardError, PagesAt, Server, Tls};

use crate::agents::decide::settle;
use crate::agents::load::{self, LoadedAgents};
use crate::agents::provider;
use crate::agents::watch::changed;
use crate::command_line::{agents_options, command_line};
use crate::config;
use crate::config::tls::TlsFiles;
use crate::exit::Exit;
use crate::figures::Figures;
use crate::knowledge::base;
use crate::logs;
use crate::output::note_words;
use crate::page::{Failure, Page, count, duration, note, shown_path, time};
use crate::person::is_anybody_here;
use crate::protection::{self, refuses_decisions};
use crate::quote::quoted;
use crate::run_names::short;
use crate::signals::Signals;
use crate::stores::Stores;
use crate::stores::database::Given;
use crate::stores::store::{LEASE, Store};
use crate::telemetry;
use crate::waits;

use super::arguments::Serve;
use super::boards::{Reachable, name_of_mcp, name_of_service, of_service, unanswered};
use super::decide::{Detail, shown_card};
use super::knowing::{Awaited, Knowing};
use super::own_tokens;
use super::{email, ending, matrix, on_store, telegram, webhooks};

/// The most failures that are counted in the first line.
const MAX_FAILURES: usize = 500;
/// How often a server that starts looks whether the one before it has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Serves until a signal comes.
pub(super) async fn serve(arguments: Serve) -> Result<Page, Failure> {
    let mut signals = Signals::new()?;
    let remark = load::remark(&arguments.files)?;
    let mut config = config::read(&arguments.files)??;
    let (people, log) = (std::mem::take(&mut config.people), std::mem::take(&mut config.log));
    let (settings, limits) = (std::mem::take(&mut config.serve).with(&arguments)?, config.limits.clone());
    logs::install(&log.with(&arguments)?);
    remark.iter().for_each(|remark| note(remark));
    let address = settings.listen;
    let tls = settings.tls.as_ref().map(|files| open_tls(files, &arguments.files.root)).transpose()?;
    if !address.ip().is_loopback() && tls.is_none() && !settings.is_insecure {
        return Err(Failure::usage(format!(
            "{address}: other machines reach this address, and there is no TLS: add --tls-cert and --tls-key, listen on 127.0.0.1 behind a \
             proxy that has it, or add --insecure"
        )));
    }
    let stores = arguments.choice.stores_with(&arguments.files)?;
    stores.check_outside(&arguments.files.root)?;
    check_none_runs(&stores).await?;
    let listener = TcpListener::bind(address).await.map_err(|error| busy(&arguments, address, &error))?;
    // A store that was opened beside a process that ends does not have the runs of that one back.
    let has_served = stores.of_server("").exists();
    if has_served {
        wait_for_last(&stores, &mut signals).await?;
    }
    let store = stores.take_new(None).await?;
    let tokens = own_tokens::open(&stores)?;
    if !has_served {
        wait_for_last(&stores, &mut signals).await?;
    }
    tokens.owner_secret().map_err(own_tokens::failure)?;
    let (hidden, named) = (Some(stores.folder()), arguments.model.as_deref());
    let facts = base::open_if_there(&stores)?;
    let mut loaded = tokio::select! {
        biased;
        () = signals.next() => return Err(interrupted()),
        loaded = load::load(&arguments.files, hidden, facts.as_ref(), named, &[]) => loaded?,
    };
    let provider = named.map(|model| provider::spec_of(model, loaded.models.as_ref())).transpose()?;
    loaded.unpriced.extend(named.iter().flat_map(|model| provider::unpriced(model, loaded.models.as_ref())));
    let knowing = Knowing { others: loaded.specs.clone(), provider };
    let of_facts: Vec<AgentSpec> = facts.iter().flat_map(|base| knowing.agents(base)).collect();
    // Runs of the base are resumed as well.
    loaded.names.extend(of_facts.iter().filter_map(|agent| Some(agent.name().ok()?.to_string())));
    config.check_prices(&loaded.unpriced)?;
    let files = watch::Sender::new(loaded.files.clone());
    let (of_tokens, runs_of_tokens, per_run) = (tokens.clone(), tokens.clone(), limits.per_run);
    let figures = Figures::record();
    let approvals = std::mem::take(&mut config.approvals);
    let (persons, owners): (BTreeMap<_, _>, _) = (people.tokens().collect(), tokens.clone());
    let groups = approvals
        .groups()
        .requesters(move |token| persons.get(token).cloned().or_else(|| owners.owner_of(token)).map(Into::into));
    // In a database, runs whose agents are elsewhere are left to the boards there, and those of a board that dies are taken over.
    let unfinished = if store.is_database() { Unfinished::Resume } else { Unfinished::Leave };
    let builder = Callboard::builder().on_unfinished(unfinished).storage(store.storage()).pool(settings.turns);
    let local = listener.local_addr().map_err(|error| Failure::failed(error.to_string()))?;
    let url = url_of(local, tls.is_some());
    let builder = builder.address(settings.public_url.as_ref().unwrap_or(&url)).timings(|timings| timings.lease(LEASE));
    let builder = settings.name.iter().fold(builder, |builder, name| builder.name(name));
    let builder = config.project.iter().fold(builder, |builder, project| builder.project(project));
    let builder =
        builder.day_limits(|days| limits.of_days(days).requesters(move |token| of_tokens.per_day_of(token.as_str())));
    let builder = builder.groups(groups).approval_policy(move |question| approvals.consent(question));
    let builder = builder.run_limits(move |from| {
        let of_token = from.map(|token| runs_of_tokens.per_run_of(token.as_str())).unwrap_or_default();
        per_run.min(of_token)
    });
    let builder = load::share_rates(builder, loaded.models.as_ref());
    let specs = loaded.specs.iter().cloned().chain(of_facts);
    let (places, pages) = ((&*arguments.files.root, &stores), settings.public_url.as_deref());
    let channel =
        config.telegram.as_ref().map(|section| telegram::open(section, &people, places, pages)).transpose()?;
    let reached = channel.as_ref().map(TelegramChannel::state);
    let in_rooms = config.matrix.as_ref().map(|section| matrix::open(section, &people, places, pages)).transpose()?;
    let in_rooms = in_rooms.flatten();
    let of_agents = config.matrix.as_ref().map(|section| matrix::open_agents(section, &people, places, pages));
    let of_agents = of_agents.transpose()?.flatten();
    let rooms_reached = in_rooms.as_ref().map(MatrixChannel::state);
    let by_mail = config.email.as_ref().map(|section| email::open(section, &people, places, pages)).transpose()?;
    let mail_reached = by_mail.as_ref().map(EmailChannel::state);
    let webhooks = webhooks::open(&config.channels, places, pages)?;
    let (receiver, unreachable) = webhooks.as_ref().map(|channel| (channel.receiver(), channel.unreachable())).unzip();
    let builder = channel.into_iter().fold(builder, callboard::Builder::channel);
    let builder = in_rooms.into_iter().fold(builder, callboard::Builder::channel);
    let builder = by_mail.into_iter().fold(builder, callboard::Builder::channel);
    let builder = webhooks.into_iter().fold(builder, callboard::Builder::channel);
    let board = specs.fold(builder, callboard::Builder::with).start().await.map_err(not_started)?;
    tokio::spawn(telegram::report(reached));
    let is_first = rooms_reached.is_none();
    tokio::spawn(matrix::report(rooms_reached, "approvals are asked", true));
    tokio::spawn(matrix::report(of_agents.as_ref().map(AgentRooms::state), "tasks are taken", is_first));
    tokio::spawn(email::report(mail_reached));
    tokio::spawn(webhooks::report(unreachable));
    let spans = telemetry::start(&board, loaded.models.clone());
    let mut reachable = Reachable::default();
    let served = async {
        let address = local;
        let mut server = Server::new(board.clone(), tokens).refuse_decisions(refuses_decisions);
        server = server.agent_files(files.subscribe());
        let of_tools = loaded.root.clone();
        server = server.changed_texts(move |action| {
            tools::changed_text(&of_tools, action).map(|text| text.map_err(|error| error.to_string()))
        });
        server = server.limits(settings.limits).trusted_proxies(settings.proxies).people(people.tokens());
        let audit = server.audit_file(&stores.of_server("audit.jsonl"));
        server = audit.map_err(|error| Failure::file(&error, format!("the audit log cannot be written: {error}")))?;
        if let Some(receiver) = receiver {
            server = server.webhook_decisions(receiver);
        }
        if let Some(base) = &facts {
            server = server.knowledge(base, knowing.config());
        }
        if let Some(figures) = &figures {
            server = server.measured(figures.text());
        }
        if !address.ip().is_unspecified() {
            // Clients name the address that they connect to.
            let own = server.public_origin(&url);
            server = own.map_err(|error| Failure::failed(error.to_string()))?;
        }
        if let Some(origin) = &settings.public_url {
            server = server.public_origin(origin).map_err(|error| Failure::failed(error.to_string()))?;
        }
        if let Some(at) = pages_at(address, tls.is_some(), settings.public_url.as_deref()) {
            server = server.dashboard(&at).map_err(|error| match error {
                DashboardError::Kept(error) => own_tokens::failure(error),
                error => Failure::failed(error.to_string()),
            })?;
        }
        // Decisions of the command line come there, and are recorded as those of others are.
        reachable.listen_for(&board, &server).await;
        let listened = reachable.listen(&server, &name_of_service(&stores)).await;
        listened.map_err(|error| not_private(&stores, &error))?;
        let listened = reachable.listen_mcp(&server, &name_of_mcp(&stores)).await;
        listened.map_err(|error| not_private(&stores, &error))?;
        let _announced = Announced::write(&stores, &url);
        if let Some(rooms) = &of_agents {
            let server = server.clone();
            rooms.start(&board, move |person, agent| {
                server.requester(person, agent.as_str()).map_err(|problem| problem.detail)
            });
        }
        let (stopped, firing) = (reachable.stopped(), server.clone());
        tokio::spawn(async move { firing.fire_schedules(stopped).await });
        let (stopped, over_http) = (reachable.stopped(), server.clone());
        let serving = tokio::spawn(async move {
            match tls {
                Some(tls) => over_http.serve_tls(listener, &tls, stopped).await,
                None => over_http.serve(listener, stopped).await,
            }
        });
        let places = (&stores, &store, &*arguments.files.root);
        let knowing = (&server, &knowing, Awaited::new(facts.is_some()));
        watch_over(&board, places, (loaded, &files), knowing, &url, &mut signals).await?;
        note("stopping: turns that run have 10 s to end; Ctrl-C again stops them at once");
        Ok(serving)
    };
    let served = served.await;
    drop(of_agents);
    let has_lost_store = served.is_err() && board.store_loss().is_some();
    let (serving, failure) = served.map_or_else(|failure| (None, Some(failure)), |serving| (Some(serving), None));
    let end = async {
        reachable.stop().await;
        let served = match serving {
            Some(serving) => serving.await.map(drop).map_err(|error| Failure::failed(error.to_string())),
            None => Ok(()),
        };
        board.shutdown().await;
        spans.end().await;
        store.close_or_note().await;
        served
    };
    let ended = ending::ended(end, signals.next(), has_lost_store).await;
    failure.map_or(ended, Err)?;
    Ok(Page::new(String::new(), Value::Null))
}

/// Prints what a person has to know, until a signal comes or the board ends.
async fn watch_over(
    board: &Callboard,
    (stores, store, root): (&Stores, &Store, &Path),
    (loaded, files): (LoadedAgents, &watch::Sender<AgentFiles>),
    (server, knowing, mut awaited): (&Server, &Knowing, Awaited),
    url: &str,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let LoadedAgents { watch: mut watched, own, names, invalid, lacking, .. } = loaded;
    let waiting = resume(board, store, &names).await?;
    note(&format!("the store is {}", shown_path(store.place())));
    let apart = if store.is_database() { on_store::apart(&store.boards().await?) } else { Vec::new() };
    protection::warning().iter().chain(&lacking).chain(&apart).for_each(|warning| note(warning));
    let running = count(own.len(), "agent");
    if let Some(pages) = server.pages() {
        let line = visible(&command_line("sign-in", stores.named()));
        note(&format!("the pages are at {pages}; to sign in: {line}"));
    }
    let failures =
        board.dead_letters().open(None, MAX_FAILURES).await.map_err(|error| Failure::failed(error.to_string()))?;
    let (conflicts, letters): (Vec<_>, Vec<_>) = failures.iter().partition(|failure| failure.is_conflict);
    let failed = invalid.len() + letters.len() + board.quarantined().len();
    let waiting = waiting + conflicts.len();
    let line = format!("{running} running · {waiting} waiting for you · {failed} failed          {url}");
    writeln!(io::stdout(), "{line}")
        .map_err(|error| Failure::failed(format!("the address cannot be written: {error}")))?;
    let (people, mut shown) = (board.people(), BTreeSet::new());
    loop {
        let is_new = |wait: &Pending| !shown.contains(&wait.id().to_string());
        tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            Some(asked) = people.next_where(is_new) => {
                shown.insert(asked.id().to_string());
                if refuses_decisions().is_some() && is_anybody_here(false) && settle(board, &asked, root).await? {
                    continue;
                }
                let kind = waits::line(&asked, Env::system().now().wall).0;
                note(&format!("{} waits for you: {kind}\n{}", short(asked.run()), shown_card(&asked, Detail::Brief, stores, None).trim_end()));
            }
            () = changed(&mut watched) => {
                if let Some(watched) = &mut watched {
                    let lines = watched.reload(board).await;
                    files.send_replace(watched.files());
                    lines.iter().for_each(|line| note_words(line));
                }
            }
            made = awaited.made(stores) => note(&knowing.open(server, made).await),
            reason = board.ended() => return Err(ended(board, &reason, stores)),
        }
    }
}

/// Why the server ends by itself, and what to do.
fn ended(board: &Callboard, reason: &EndReason, stores: &Stores) -> Failure {
    let Some(loss) = board.store_loss() else { return Failure::failed(format!("the board has ended: {reason}")) };
    let line = visible(&command_line("serve", stores.named()));
    let others = match stores.database() {
        Some(_) => "other boards that have its agents continue its runs",
        None => "its runs continue with the next one",
    };
    let text = format!(
        "the board has ended: {}; {others}\n    to start it again, with the options that it had: {line}",
        visible(&loss)
    );
    Failure::new(Exit::Unavailable, text)
}

fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "a signal came before the server began".to_owned())
}

/// Resumes runs that no process works on and whose agents are here, and returns how many things they wait for. On a database, whose other
/// boards' runs are shown here as well, those that all runs wait for.
async fn resume(board: &Callboard, store: &Store, names: &BTreeSet<String>) -> Result<usize, Failure> {
    let mut waiting = 0;
    for run in store.open_runs().await? {
        let Ok(loaded) = store.load(run).await else { continue };
        let mut open = loaded.replay.turns().filter(|turn| turn.closed.is_none());
        let is_resumed =
            open.all(|turn| names.contains(turn.agent.as_str())) && matches!(store.board_of(run).await, Ok(None));
        if is_resumed {
            board.take_up(run).await;
            note(&format!("run {} is resumed", short(run)));
        }
        if is_resumed || store.is_database() {
            waiting += waits::open(loaded.replay.run()).len();
        }
    }
    Ok(waiting)
}

fn busy(arguments: &Serve, address: SocketAddr, error: &io::Error) -> Failure {
    let Serve { choice, files, model, name, .. } = arguments;
    let exit = match error.kind() {
        io::ErrorKind::AddrInUse => Exit::Unavailable,
        io::ErrorKind::PermissionDenied => Exit::Denied,
        _ => Exit::Usage,
    };
    let options = agents_options(files, model.as_deref());
    let name = name.as_ref().map(|name| format!(" --name {}", quoted(name))).unwrap_or_default();
    let other = command_line(
        &format!("serve --listen 127.0.0.1:0{name}{options}"),
        choice.store.as_ref().map(Given::shown).as_deref(),
    );
    Failure::new(exit, format!("{address} cannot be listened on: {error}; another port: {}", visible(&other)))
}

/// Why the board does not work on its store. What the board of a name says about itself is of another machine.
fn not_started(error: BuildError) -> Failure {
    let BuildError::Storage(StorageError::NameTaken { name, about, left }) = &error else { return Failure::of(error) };
    let about: BoardInfo = serde_json::from_slice(about).unwrap_or_default();
    let [name, address] =
        [&**name, about.address.as_deref().unwrap_or("an address that it does not name")].map(visible);
    let text = format!(
        "a board named {name} works on the store already: that at {address}, since {}, whose lease lasts {} more; stop that one, wait until \
         its lease is over if it has died, or choose another --name",
        time(about.began_at),
        duration(*left)
    );
    Failure::new(Exit::Unavailable, text)
}

/// Refuses a second server, which `callboard send` could not find.
async fn check_none_runs(stores: &Stores) -> Result<(), Failure> {
    match of_service(stores).request("GET", "/v1/health", None).await {
        Err(ClientError::Absent(_)) => Ok(()),
        Err(ClientError::Silent(_)) => Err(Failure::new(Exit::Unavailable, silent(stores))),
        Err(error) => Err(unanswered(&error)),
        Ok(_) => Err(runs_already(stores)),
    }
}

/// Waits until the process of a server that is stopping has ended: only then its runs are taken over. Later servers wait until
/// this process has ended.
async fn wait_for_last(stores: &Stores, signals: &mut Signals) -> Result<(), Failure> {
    let path = stores.of_server("serving.lock");
    let failed = |error: &io::Error| Failure::file(error, format!("{} cannot be locked: {error}", shown_path(&path)));
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(|error| failed(&error))?;
    let mut has_waited = false;
    loop {
        match file.try_lock() {
            Ok(()) => {
                // The system unlocks it with the claims of the runs, which are held until the end of the process.
                std::mem::forget(file);
                return Ok(());
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        // It does not stop: it began at the same moment.
        check_none_runs(stores).await?;
        if !has_waited {
            note("waiting until the server that is stopping has ended");
            has_waited = true;
        }
        tokio::select! {
            biased;
            () = signals.next() => return Err(interrupted()),
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

/// The URL of an address. The usual port is not in it, as it is not in what clients send.
fn url_of(address: SocketAddr, has_tls: bool) -> String {
    let (scheme, usual) = if has_tls { ("https", 443) } else { ("http", 80) };
    match address {
        SocketAddr::V4(address) if address.port() == usual => format!("{scheme}://{}", address.ip()),
        SocketAddr::V6(address) if address.port() == usual => format!("{scheme}://[{}]", address.ip()),
        _ => format!("{scheme}://{address}"),
    }
}

/// Where the pages of a server are; `None` if only other machines reach its address, by no name that it knows.
fn pages_at(address: SocketAddr, has_tls: bool, public_url: Option<&str>) -> Option<PagesAt> {
    let ip = address.ip();
    let here = || PagesAt::Loopback { port: address.port(), has_tls };
    public_url.map(|origin| PagesAt::Origin(origin.to_owned())).or((ip.is_loopback() || ip.is_unspecified()).then(here))
}

/// The certificate and its key, which is hidden from programs of agents.
fn open_tls(files: &TlsFiles, root: &Path) -> Result<Tls, Failure> {
    let tls = files.open(root)?;
    hide_from_programs(files.key().canonicalize().unwrap_or_else(|_| files.key().to_owned()));
    Ok(tls)
}

/// The file with the process and the URL of a server, while it serves. It is of the server whose socket answers.
struct Announced(PathBuf);

impl Announced {
    fn file(stores: &Stores) -> PathBuf {
        stores.of_server("server.json")
    }

    /// Where it cannot be written, a second server is refused without these.
    fn write(stores: &Stores, url: &str) -> Self {
        let (file, json) = (Self::file(stores), json!({ "process": std::process::id(), "url": url }));
        // It replaces whatever a server that was killed has left, also a pipe, which a write would wait for.
        let _ = fs::remove_file(&file);
        let _ = File::create_new(&file).and_then(|mut file| file.write_all(json.to_string().as_bytes()));
        Self(file)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// That the server of these stores does not answer.
fn silent(stores: &Stores) -> String {
    format!(
        "a server of these agents{} does not answer: it may be suspended; let it continue, or kill it, and start this one again",
        announced(stores)
    )
}

/// The process and the address of a server, as it has announced them.
fn announced(stores: &Stores) -> String {
    let file = Some(Announced::file(stores)).filter(|file| file.is_file());
    let announced =
        file.and_then(|file| fs::read(file).ok()).and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let which = announced
        .and_then(|it| Some(format!(" (process {}, {})", it["process"].as_u64()?, visible(it["url"].as_str()?))));
    which.unwrap_or_default()
}

fn runs_already(stores: &Stores) -> Failure {
    let text = format!("a server runs for these agents already{}: stop that one first", announced(stores));
    Failure::new(Exit::Unavailable, text)
}

fn not_private(stores: &Stores, error: &ListenError) -> Failure {
    match error {
        ListenError::InUse(_) => runs_already(stores),
        ListenError::Folder(FolderError::Io { error: cause, .. }) => Failure::file(cause, error.to_string()),
        error => Failure::new(Exit::Denied, error.to_string()),
    }
}
