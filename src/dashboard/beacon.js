// The beacon: one tag in the pages of a book tells when they are read.
//
//   <script defer src="https://host/beacon.js" data-book="slug" data-key="pt_…"></script>
//
// or, where attributes cannot be set, src="https://host/beacon.js?book=slug&key=pt_…". On the author's
// own machine it says nothing, unless told to (data-local, or &local=1).
//
// A view waits in sessionStorage, which is this tab's alone, until the server has said that it is
// committed, or never can be. Its id is made here, so that it counts once however often it is sent.
// It is sent at once, by a request that outlives the page. No cookies, and nothing that tells one
// reader from another; of those who ask not to be followed (DNT, Sec-GPC) not even where from.
//
// It must have less than 2,048 bytes as it is served: without comments, which have lines of their own,
// without blanks around signs, and with names that begin with $ cut to a letter (src/http/beacon.rs).
(() => {
  let $page, $timer, $waiting = [], $pause = 500, $until = 0,
    $document = document,
    $tag = $document.currentScript,
    $source = new URL($tag.src),
    $option = $name => $tag.dataset[$name] ?? $source.searchParams.get($name),
    $mine = $option("book") + " pagetide ",
    $off = "pagetide-ignore",

    // No clock that is set moves it within a page.
    $now = () => Math.round(performance.timeOrigin + performance.now()),

    // Storage may be forbidden, or full: then views wait in memory, and nobody is left out.
    $attempt = $act => { try { return $act() } catch {} },
    $tab = $attempt(() => sessionStorage) || {},
    $browser = $attempt(() => localStorage) || {},

    $forget = $view => delete $tab[$mine + $view.id],

    // Of more than a hundred that wait, the oldest go.
    $wait = $views => {
      $waiting.push(...$views);
      $waiting.sort(($view, $other) => $view.at - $other.at).splice(0, $waiting.length - 100).map($forget);
    },

    $later = $ms => {
      clearTimeout($timer);
      $timer = setTimeout($send, $ms);
    },

    $post = $views => fetch(`${$source.origin}/v1/books/${$option("book")}/clicks?key=${$option("key")}`, {
      method: "POST",
      body: JSON.stringify($views.map(({ at, ...$view }) => ({
        ...$view,
        age_ms: Math.min(Math.max($now() - at, 0), 6048e5)
      }))),
      keepalive: 1,
      credentials: "omit",
      signal: AbortSignal.timeout?.(3e4)
    }).then(({ status, headers }) => {
      // Too early, or too much at once; or a key or a list of origins that may yet be put right.
      if (/^(5|4(0[138]|29))/.test(status)) {
        // At most an hour; a date, which is no number, says nothing.
        $until = $now() + Math.min(headers.get("retry-after") * 1e3 || 0, 36e5);
        throw 0;
      }
      $views.map($forget);
      $pause = 500;
    }).catch(() => {
      $wait($views);
      $later($pause * (1 + Math.random()));
    }),

    $send = () => {
      if ($now() < $until) return $later($until - $now());
      if ($waiting[0]) $pause = Math.min($pause * 2, 2e5);
      // Ten stay below the 64 KiB that requests which outlive their page may have.
      while ($waiting[0]) $post($waiting.splice(0, 10));
    },

    // Counts the page, if it is another one than before or is read again.
    $look = $again => {
      let { hash, pathname, search, origin } = location;
      if (hash == "#" + $off) {
        $attempt(() => $browser[$off] = $browser[$off] ? "" : "on");
        // A reload is not to switch it back.
        history.replaceState(0, "", pathname + search);
        alert($off + ": " + ($browser[$off] || "off"));
      }
      if ($page == pathname && !$again || $browser[$off]) return;
      let $query = new URLSearchParams(search),
        $from = $document.referrer,
        $view = {
          id: crypto.getRandomValues(new Uint32Array(4)) + "",
          page: pathname,
          at: $now()
        };
      if (!$page && navigator.doNotTrack != 1 && !navigator.globalPrivacyControl) {
        // 50 characters have at most the 200 bytes that a source may have.
        $view.source = ($query.get("utm_source") || $query.get("ref"))?.match(/^\P{Cc}{1,50}/u)?.[0];
        if ($from && !$from.startsWith(origin + "/")) $view.referrer = $from.slice(0, 2048);
      }
      $page = pathname;
      $wait([$view]);
      $attempt(() => $tab[$mine + $view.id] = JSON.stringify($view));
      $send();
    },

    $start = () => {
      for (let $name in $tab) if ($name.startsWith($mine)) $wait([JSON.parse($tab[$name])]);
      for (let $name of ["pushState", "replaceState"]) {
        let $original = history[$name];
        history[$name] = (...$given) => {
          $original.apply(history, $given);
          $look();
        };
      }
      // Hidden is also a page that is left: what waits is tried once more.
      for (let $name of ["online", "pageshow", "popstate", "visibilitychange"])
        addEventListener($name, ({ persisted }) =>
          $name == "pageshow" ? persisted && $look(1) : ($send(), $look()));
      $look();
    };

  // On the author's own machine; or where the tag stands twice, or was put in anew by a script.
  if (/^(127[.\d]+|\[::1]|(.*\.)?localhost|)$/.test(location.hostname) && $option("local") == null
    || window[$mine]) return;
  window[$mine] = 1;
  // A page that the browser made ready in advance is not being read yet.
  if ($document.prerendering) $document.addEventListener("prerenderingchange", $start);
  else $start();
})();
