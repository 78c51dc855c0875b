/* Both ends of the gateway benchmark: an engine that costs nothing, and a client that counts everything.
 *
 *   traffic engine PORT EVENTS PACE_MS
 *     Serves /health, /v1/models and POSTs on loopback. A body with "stream":true gets EVENTS server-sent events and
 *     [DONE]: as fast as they are taken, or one every PACE_MS milliseconds, for all streams together, if the body has
 *     "user":"paced". Any other body gets a completion.
 *   traffic client PORT CONNECTIONS SECONDS BODY_BYTES EVENTS USER
 *     Sends chat completions on keep-alive connections, each the next as soon as its answer is complete, streamed if
 *     EVENTS > 0. Prints one line of JSON: answers and events within SECONDS and in all, bad answers, connections
 *     made, and medians of latency.
 *
 * It is written in C and runs on another core than what is measured, so that neither end is the limit. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 16384, READ_MAX = 1 << 18, EVENTS_AT_ONCE = 256 };

static const char EVENT[] =
    "data: {\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1,"
    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,"
    "\"finish_reason\":null}]}\n\n";
static const char LAST[] = "data: [DONE]\n\n";
static const char COMPLETION[] =
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"bench\",\"choices\":[{\"index\":0,"
    "\"message\":{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":"
    "{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}";
static const char MODELS[] = "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\"}]}";

static char scratch[READ_MAX];

static void die(const char *what) {
  perror(what);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void watch(int epoll, int fd, void *data, unsigned events, int operation) {
  struct epoll_event event = {.events = events, .data.ptr = data};
  if (epoll_ctl(epoll, operation, fd, &event) < 0) die("epoll_ctl");
}

static void prepare(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* ---- the engine ---- */

struct serving {
  int fd;
  char head[HEAD_MAX];
  size_t head_size;
  long body_left; /* of the request that is being read; -1 while its head is */
  int is_post, is_stream, is_paced, is_models, is_other;
  char tail[32]; /* end of the body so far: the field may be split over two reads */
  long events_left; /* of the stream that is being sent; 0 if none is */
  struct serving *next, *previous; /* of those that stream */
  char *pending;
  size_t pending_size, pending_sent;
};

static struct serving streams = {.next = &streams, .previous = &streams};
static long engine_events;
static int engine_pace, engine_epoll;

static void close_serving(struct serving *s) {
  if (s->next) s->next->previous = s->previous, s->previous->next = s->next;
  close(s->fd);
  free(s->pending);
  free(s);
}

/* Sends what is given, keeps what the socket does not take. Returns -1 if the client is gone. */
static int put(struct serving *s, const char *data, size_t size) {
  ssize_t sent = 0;
  if (s->pending_size == s->pending_sent) {
    sent = send(s->fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return -1;
    if (sent < 0) sent = 0;
    s->pending_size = s->pending_sent = 0;
  }
  if ((size_t)sent < size) {
    size_t rest = size - sent;
    s->pending = realloc(s->pending, s->pending_size + rest);
    memcpy(s->pending + s->pending_size, data + sent, rest);
    s->pending_size += rest;
    watch(engine_epoll, s->fd, s, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
  }
  return 0;
}

static int put_chunk(struct serving *s, const char *data, size_t size) {
  char framed[1024];
  int length = snprintf(framed, sizeof framed, "%zx\r\n%.*s\r\n", size, (int)size, data);
  return put(s, framed, length);
}

static int put_answer(struct serving *s, const char *status, const char *body, const char *kind) {
  char answer[2048];
  int size = snprintf(answer, sizeof answer, "HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", status, kind,
                      strlen(body), body);
  return put(s, answer, size);
}

static int put_event(struct serving *s) {
  if (--s->events_left > 0) return put_chunk(s, EVENT, sizeof EVENT - 1);
  s->next->previous = s->previous, s->previous->next = s->next, s->next = NULL;
  if (put_chunk(s, LAST, sizeof LAST - 1) < 0) return -1;
  return put(s, "0\r\n\r\n", 5);
}

/* Without a pace: as much as the socket takes. */
static int pump(struct serving *s) {
  for (int n = 0; s->events_left > 0 && s->pending_size == s->pending_sent; n++)
    if (put_event(s) < 0) return -1;
  return 0;
}

static int respond(struct serving *s) {
  s->body_left = -1;
  if (!s->is_post) {
    if (s->is_models) return put_answer(s, "200 OK", MODELS, "application/json");
    return put_answer(s, s->is_other ? "404 Not Found" : "200 OK", "{}", "application/json");
  }
  if (!s->is_stream) return put_answer(s, "200 OK", COMPLETION, "application/json");
  static const char head[] =
      "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
  if (put(s, head, sizeof head - 1) < 0) return -1;
  s->events_left = engine_events + 1;
  s->next = streams.next, s->previous = &streams, streams.next->previous = s, streams.next = s;
  return s->is_paced ? 0 : pump(s);
}

static void look_for_fields(struct serving *s, const char *data, size_t size) {
  static const char stream[] = "\"stream\":true", paced[] = "\"user\":\"paced\"";
  char joint[2 * sizeof s->tail];
  size_t kept = strlen(s->tail), take = size < sizeof s->tail ? size : sizeof s->tail - 1;
  memcpy(joint, s->tail, kept);
  memcpy(joint + kept, data, take);
  if (memmem(joint, kept + take, stream, sizeof stream - 1) || memmem(data, size, stream, sizeof stream - 1))
    s->is_stream = 1;
  if (memmem(joint, kept + take, paced, sizeof paced - 1) || memmem(data, size, paced, sizeof paced - 1))
    s->is_paced = 1;
  size_t keep = size < sizeof s->tail - 1 ? size : sizeof s->tail - 1;
  memcpy(s->tail, data + size - keep, keep);
  s->tail[keep] = 0;
}

static int take_request(struct serving *s, char *data, size_t size) {
  while (size > 0) {
    if (s->body_left < 0) {
      size_t before = s->head_size, take = size < HEAD_MAX - before ? size : HEAD_MAX - before;
      memcpy(s->head + before, data, take);
      s->head_size += take;
      char *end = memmem(s->head, s->head_size, "\r\n\r\n", 4);
      if (!end) {
        if (s->head_size == HEAD_MAX) return -1;
        return 0;
      }
      size_t used = end + 4 - s->head - before;
      data += used, size -= used;
      s->head[end - s->head] = 0;
      s->head_size = 0, s->tail[0] = 0, s->is_stream = s->is_paced = 0;
      s->is_post = !strncmp(s->head, "POST", 4);
      s->is_models = !!strstr(s->head, " /v1/models ");
      s->is_other = !s->is_models && !strstr(s->head, " /health");
      char *length = strcasestr(s->head, "\ncontent-length:");
      if (strcasestr(s->head, "\ntransfer-encoding:")) {
        fprintf(stderr, "engine: a chunked request is not understood\n");
        return -1;
      }
      s->body_left = length ? atol(length + 16) : 0;
    }
    size_t take = (size_t)s->body_left < size ? (size_t)s->body_left : size;
    if (take) look_for_fields(s, data, take);
    data += take, size -= take, s->body_left -= take;
    if (s->body_left == 0 && respond(s) < 0) return -1;
  }
  return 0;
}

static void run_engine(int port) {
  int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (void *)&address, sizeof address) < 0 || listen(listener, 1024) < 0) die("engine: bind");
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  if (engine_pace) {
    struct timespec pace = {engine_pace / 1000, engine_pace % 1000 * 1000000L};
    struct itimerspec each = {pace, pace};
    timerfd_settime(timer, 0, &each, NULL);
  }
  engine_epoll = epoll_create1(0);
  watch(engine_epoll, listener, NULL, EPOLLIN, EPOLL_CTL_ADD);
  watch(engine_epoll, timer, &streams, EPOLLIN, EPOLL_CTL_ADD);
  for (;;) {
    struct epoll_event ready[EVENTS_AT_ONCE];
    int count = epoll_wait(engine_epoll, ready, EVENTS_AT_ONCE, -1);
    for (int i = 0; i < count; i++) {
      struct serving *s = ready[i].data.ptr;
      if (!s) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        prepare(fd);
        s = calloc(1, sizeof *s);
        s->fd = fd, s->body_left = -1;
        watch(engine_epoll, fd, s, EPOLLIN, EPOLL_CTL_ADD);
        continue;
      }
      if (s == &streams) {
        unsigned long long ticks;
        if (read(timer, &ticks, sizeof ticks) < 0) continue;
        for (struct serving *one = streams.next, *after; one != &streams; one = after) {
          after = one->next;
          if (one->is_paced) put_event(one); /* a client that is gone is seen when it is read from */
        }
        continue;
      }
      int gone = 0;
      if (ready[i].events & EPOLLOUT) {
        ssize_t sent =
            send(s->fd, s->pending + s->pending_sent, s->pending_size - s->pending_sent, MSG_NOSIGNAL);
        if (sent > 0) s->pending_sent += sent;
        if (sent < 0 && errno != EAGAIN) gone = 1;
        if (!gone && s->pending_sent == s->pending_size) {
          s->pending_sent = s->pending_size = 0;
          watch(engine_epoll, s->fd, s, EPOLLIN, EPOLL_CTL_MOD);
          if (!s->is_paced) gone = pump(s) < 0;
        }
      }
      if (!gone && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t size = recv(s->fd, scratch, sizeof scratch, 0);
        gone = size == 0 || (size < 0 && errno != EAGAIN);
        if (size > 0) gone = take_request(s, scratch, size) < 0;
      }
      if (gone) close_serving(s);
    }
  }
}

/* ---- the client ---- */

struct calling {
  int fd;
  char *request;
  size_t request_size, sent;
  double began, first;
  char head[HEAD_MAX];
  size_t head_size;
  int in_body, chunked;
  long left; /* of the body, or of the chunk; -1: a chunk's size line, -2: the line break after a chunk */
  char line[32];
  size_t line_size;
  int last_chunk, newline;
  long events;
};

static double latencies[1 << 22], firsts[1 << 22];
static long answers, events_seen, all_answers, all_events, bad, made;

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, long count) {
  if (!count) return 0;
  qsort(values, count, sizeof *values, by_size);
  return values[count / 2];
}

static void connect_calling(int epoll, struct calling *c, int port) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (void *)&address, sizeof address) < 0) die("client: connect");
  prepare(c->fd);
  made++;
  watch(epoll, c->fd, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD);
}

static void begin(int epoll, struct calling *c) {
  c->sent = c->head_size = c->line_size = 0;
  c->in_body = c->chunked = c->last_chunk = c->newline = 0;
  c->events = 0, c->first = 0, c->began = now();
  watch(epoll, c->fd, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
}

static void count_events(struct calling *c, const char *data, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (data[i] == '\n' && c->newline) c->events++;
    c->newline = data[i] == '\n' && !c->newline;
  }
}

/* Returns 1 at the end of the answer, -1 if it is not what was expected. */
static int take_answer(struct calling *c, const char *data, size_t size) {
  while (size > 0) {
    if (!c->in_body) {
      size_t before = c->head_size, take = size < HEAD_MAX - 1 - before ? size : HEAD_MAX - 1 - before;
      memcpy(c->head + before, data, take);
      c->head_size += take;
      c->head[c->head_size] = 0;
      char *end = memmem(c->head, c->head_size, "\r\n\r\n", 4);
      if (!end) return c->head_size == HEAD_MAX - 1 ? -1 : 0;
      size_t used = end + 4 - c->head - before;
      data += used, size -= used;
      *end = 0;
      if (strncmp(c->head, "HTTP/1.1 200", 12)) return -1;
      c->in_body = 1;
      c->chunked = !!strcasestr(c->head, "\ntransfer-encoding: chunked");
      char *length = strcasestr(c->head, "\ncontent-length:");
      if (!c->chunked && !length) return -1;
      c->left = c->chunked ? -1 : atol(length + 16);
      continue;
    }
    if (!c->first) c->first = now();
    if (c->chunked && c->left == -2) { /* CRLF after a chunk, or after the last one */
      if (*data++ == '\n') {
        if (c->last_chunk) return size == 1 ? 1 : -1;
        c->left = -1;
      }
      size--;
      continue;
    }
    if (c->chunked && c->left == -1) {
      if (c->line_size == sizeof c->line - 1) return -1;
      c->line[c->line_size++] = *data;
      size--;
      if (*data++ != '\n') continue;
      c->line[c->line_size] = 0;
      c->line_size = 0;
      c->left = strtol(c->line, NULL, 16);
      if (c->left == 0) c->last_chunk = 1, c->left = -2;
      continue;
    }
    size_t take = (size_t)c->left < size ? (size_t)c->left : size;
    count_events(c, data, take);
    data += take, size -= take, c->left -= take;
    if (c->left == 0) {
      if (!c->chunked) return size ? -1 : 1;
      c->left = -2;
    }
  }
  return 0;
}

static int run_client(int port, int connections, double seconds, long body_bytes, long expected, const char *user) {
  int epoll = epoll_create1(0);
  struct calling *all = calloc(connections, sizeof *all);
  for (int i = 0; i < connections; i++) {
    struct calling *c = &all[i];
    char *body = malloc(body_bytes + 1024);
    int size = sprintf(body, "{\"model\":\"bench\",\"user\":\"%s\",\"stream\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"",
                       user, expected ? "true" : "false");
    for (; size < body_bytes - 4; size++) body[size] = "lorem ipsum dolor sit amet "[size % 27];
    size += sprintf(body + size, "\"}]}");
    c->request = malloc(size + 1024);
    c->request_size = sprintf(c->request,
                              "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
                              "accept: */*\r\nuser-agent: bench\r\nauthorization: Bearer key-of-the-bench\r\n"
                              "x-autellix-session: bench-%d\r\ncontent-length: %d\r\n\r\n",
                              port, i, size);
    memcpy(c->request + c->request_size, body, size);
    c->request_size += size;
    free(body);
    connect_calling(epoll, c, port);
    begin(epoll, c);
  }
  double start = now(), end = start + seconds, stop = end;
  int running = connections;
  while (running) {
    struct epoll_event ready[EVENTS_AT_ONCE];
    int count = epoll_wait(epoll, ready, EVENTS_AT_ONCE, 10000);
    if (count == 0) {
      bad += running;
      break;
    }
    for (int i = 0; i < count; i++) {
      struct calling *c = ready[i].data.ptr;
      int done = 0;
      if (ready[i].events & EPOLLOUT) {
        ssize_t sent = send(c->fd, c->request + c->sent, c->request_size - c->sent, MSG_NOSIGNAL);
        if (sent > 0) c->sent += sent;
        if (c->sent == c->request_size) watch(epoll, c->fd, c, EPOLLIN, EPOLL_CTL_MOD);
        if (sent < 0 && errno != EAGAIN) done = -1;
      }
      if (!done && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t size = recv(c->fd, scratch, sizeof scratch, 0);
        if (size > 0) done = take_answer(c, scratch, size);
        else if (size == 0 || errno != EAGAIN) done = -1;
      }
      if (!done) continue;
      double at = now();
      if (done == 1 && expected && c->events != expected + 1) done = -1;
      if (done == 1) all_answers++, all_events += c->events;
      if (done == 1 && at <= end) {
        latencies[answers] = at - c->began;
        firsts[answers] = c->first - c->began;
        answers++, events_seen += c->events;
      }
      if (done < 0) {
        bad++;
        close(c->fd);
        connect_calling(epoll, c, port);
      }
      if (at < end) begin(epoll, c);
      else running--, stop = at;
    }
  }
  printf("{\"answers\":%ld,\"events\":%ld,\"all_answers\":%ld,\"all_events\":%ld,\"bad\":%ld,\"connections\":%ld,\"seconds\":%.3f,\"all_seconds\":%.3f,"
         "\"median_us\":%.1f,\"first_us\":%.1f}\n",
         answers, events_seen, all_answers, all_events, bad, made, seconds, stop - start, median(latencies, answers) * 1e6,
         median(firsts, answers) * 1e6);
  return 0;
}

int main(int count, char **arguments) {
  if (count == 5 && !strcmp(arguments[1], "engine")) {
    engine_events = atol(arguments[3]), engine_pace = atoi(arguments[4]);
    run_engine(atoi(arguments[2]));
  }
  if (count == 8 && !strcmp(arguments[1], "client"))
    return run_client(atoi(arguments[2]), atoi(arguments[3]), atof(arguments[4]), atol(arguments[5]), atol(arguments[6]),
                      arguments[7]);
  fprintf(stderr, "usage: traffic engine PORT EVENTS PACE_MS | traffic client PORT CONNECTIONS SECONDS BODY_BYTES EVENTS USER\n");
  return 2;
}
