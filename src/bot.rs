//! Whether a user agent is a program rather than a reader.
//!
//! **Promises.** A user agent that says nothing is no bot: browsers behind some proxies send none.
//! Nothing but the name is judged.

use std::sync::LazyLock;

use isbot::Bots;
use quick_cache::sync::Cache;

/// Programs that the list of the crate does not know yet.
const NEWER: [&str; 3] = ["^meta-external", "^reqwest/", "^undici"];

static BOTS: LazyLock<Bots> = LazyLock::new(|| {
    let mut bots = Bots::default();
    bots.append(&NEWER);
    bots
});

/// How many user agents are remembered: a log has few, and telling one takes longer than all else that
/// is done to its line.
const REMEMBERED: usize = 2048;

/// A longer one is not remembered.
const MAX_REMEMBERED_BYTES: usize = 512;

static KNOWN: LazyLock<Cache<Box<str>, bool>> = LazyLock::new(|| Cache::new(REMEMBERED));

/// Whether `user_agent` names a crawler, a library or a tool.
#[must_use]
pub fn is_bot(user_agent: &str) -> bool {
    if user_agent.len() > MAX_REMEMBERED_BYTES {
        return BOTS.is_bot(user_agent);
    }
    if let Some(known) = KNOWN.get(user_agent) {
        return known;
    }
    let is_bot = BOTS.is_bot(user_agent);
    KNOWN.insert(user_agent.into(), is_bot);
    is_bot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_no_bots() {
        let readers = [
            "",
            "-",
            "odd \"quoted\" agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
            "Mozilla/5.0 (Linux; Android 9; CUBOT_NOTE_S) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/89.0.4389.90 Mobile Safari/537.36",
            "Opera/9.80 (Windows NT 6.1; WOW64) Presto/2.12.388 Version/12.18",
            "w3m/0.5.3+git20230121",
            "Lynx/2.8.9rel.1 libwww-FM/2.14 SSL-MM/1.4.1",
        ];
        for reader in readers {
            assert!(!is_bot(reader), "{reader}");
        }
    }

    #[test]
    fn programs_are_bots() {
        let programs = [
            "curl/8.5.0",
            "Wget/1.21.4",
            "python-requests/2.32.3",
            "reqwest/0.13.1",
            "Go-http-client/2.0",
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/120.0.0.0 Safari/537.36",
            "meta-externalagent/1.1",
        ];
        for program in programs {
            assert!(is_bot(program), "{program}");
        }
    }
}
