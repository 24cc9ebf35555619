//! The steps as scripts. Redis runs each as a whole. But an error, as of a command that the login lacks, ends a script, and what it has
//! written until then stays. So the state of a record is the last that a step writes, and a step that has failed is repeated.

use std::sync::LazyLock;

use redis::Script;

/// The code of the error about a key that is no record of idem.
pub(crate) const FOREIGN: &str = "IDEMFOREIGN";

/// What all steps share. The time is that of Redis. A record is a hash; of anything else nothing is changed.
const PRELUDE: &str = r"
local function now()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
local KNOWN = { running = true, done = true, half = true, dead = true }
local function read(key)
    local kind = redis.call('TYPE', key).ok
    if kind == 'none' then return { letter = '' } end
    if kind ~= 'hash' then return nil, 'a ' .. kind end
    local found = redis.call('HMGET', key, 'state', 'fingerprint', 'token', 'until', 'starts', 'at', 'letter')
    if not KNOWN[found[1]] then return nil, 'a hash with another state' end
    return {
        state = found[1], fingerprint = found[2] or '', token = found[3] or '', ends = tonumber(found[4] or 0),
        starts = tonumber(found[5] or 0), at = tonumber(found[6] or 0), letter = found[7] or '',
    }
end
local function foreign(what)
    return redis.error_reply('IDEMFOREIGN under the name of a record is ' .. what .. ', which another program or version has written')
end
local key = KEYS[1]
local record, odd = read(key)
if not record then return foreign(odd) end
";

/// Arguments: token, fingerprint, lease, retention.
const ACQUIRE: &str = r"
local token, time = ARGV[1], now()
if record.state == 'done' or record.state == 'dead' then
    return { 'done', record.fingerprint, math.max(time - record.at, 0) }
end
if record.state == 'half' then
    -- Its letter must have its own message: that of a lost answer comes again.
    if record.fingerprint ~= ARGV[2] then return { 'busy', 1000 } end
    redis.call('HSET', key, 'token', token)
    return { 'half', record.letter }
end
local starts = record.starts or 0
if record.state and record.token ~= token and record.ends > time then
    return { 'busy', record.ends - time }
end
if not record.state or record.token ~= token then starts = starts + 1 end
redis.call('HSET', key, 'state', 'running', 'fingerprint', ARGV[2], 'token', token, 'until', time + ARGV[3], 'starts', starts)
-- The letter of a message that is replayed stays until the message is done.
if record.letter == '' then
    redis.call('PEXPIRE', key, ARGV[4])
else
    redis.call('PERSIST', key)
end
return { 'new', starts, time }
";

/// Arguments: token, lease. The record must not end before a run that takes longer than the retention.
const RENEW: &str = r"
if record.state ~= 'running' or record.token ~= ARGV[1] then return 0 end
redis.call('HSET', key, 'until', now() + ARGV[2])
local left = redis.call('PTTL', key)
if left >= 0 and left < 2 * ARGV[2] then redis.call('PEXPIRE', key, 2 * ARGV[2]) end
return 1
";

/// Arguments: token.
const RELEASE: &str = r"
if record.state ~= 'running' or record.token ~= ARGV[1] then return 0 end
if record.starts <= 1 and record.letter == '' then
    redis.call('DEL', key)
else
    redis.call('HSET', key, 'token', '', 'until', 0, 'starts', math.max(record.starts - 1, 0))
end
return 1
";

/// Keys: the record, the set of dead ones, and those of the commands. Arguments: token, retention, and for each command the type that its
/// key must have, its length, and itself.
///
/// The types and, on Redis 7 and Valkey, the permissions are checked before anything is written. The completion is written before the
/// commands, so that a server without memory refuses it before any of them. If the first command fails, nothing of the handler is written, and the message is running again.
const COMPLETE: &str = r"
local token = ARGV[1]
if record.token ~= token then return { 'lost' } end
if record.state == 'done' then return { 'yes' } end
if record.state == 'half' then return { 'half', record.letter } end
if record.state ~= 'running' then return { 'lost' } end
-- The types of the keys as the commands leave them.
local types, commands, at = {}, {}, 3
while at <= #ARGV do
    local kind, length = ARGV[at], tonumber(ARGV[at + 1])
    local command = { unpack(ARGV, at + 2, at + 1 + length) }
    local name, written = command[1], command[2]
    local found = types[written] or redis.call('TYPE', written).ok
    if kind ~= '' and found ~= 'none' and found ~= kind then
        return { 'refused', name .. ' needs a ' .. kind .. ', and the key ' .. written .. ' has a ' .. found }
    end
    if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(command)) then
        return { 'refused', name .. ' of the key ' .. written .. ' is not permitted to this login' }
    end
    if name == 'SET' then
        types[written] = 'string'
    elseif name == 'DEL' then
        types[written] = 'none'
    elseif kind ~= '' then
        types[written] = kind
    end
    commands[#commands + 1] = command
    at = at + 2 + length
end
redis.call('HSET', key, 'at', now())
redis.call('PEXPIRE', key, ARGV[2])
redis.call('HSET', key, 'state', 'done')
for number, command in ipairs(commands) do
    local answer = redis.pcall(unpack(command))
    if type(answer) == 'table' and answer.err then
        local why = command[1] .. ' of the key ' .. command[2] .. ' failed: ' .. answer.err
        if number == 1 then
            redis.call('HSET', key, 'state', 'running')
            if record.letter ~= '' then redis.call('PERSIST', key) end
            return { 'refused', why }
        end
        redis.call('HSET', key, 'state', 'half', 'letter', why)
        redis.call('PERSIST', key)
        return { 'half', why }
    end
end
redis.call('HDEL', key, 'until', 'starts', 'letter')
if record.letter ~= '' then redis.call('SREM', KEYS[2], key) end
return { 'yes' }
";

/// Keys: the record, the set of dead ones. Arguments: token, letter.
const BURY: &str = r"
if record.token ~= ARGV[1] or record.state == 'done' or not record.state then return 0 end
if record.state == 'dead' then return 1 end
redis.call('SADD', KEYS[2], key)
redis.call('PERSIST', key)
redis.call('HDEL', key, 'until', 'starts')
redis.call('HSET', key, 'state', 'dead', 'at', now(), 'letter', ARGV[2])
return 1
";

/// Keys: the record, the set of dead ones. Arguments: `replay` or `discard`, retention.
const RESOLVE: &str = r"
local is_replayed = record.state == 'running' and record.letter ~= ''
if record.state ~= 'dead' and not is_replayed then return 0 end
if ARGV[1] == 'replay' then
    -- The letter stays, and is listed, until the message that is published again is done. If that runs already, it goes on.
    if not is_replayed then redis.call('HSET', key, 'state', 'running', 'token', '', 'until', 0, 'starts', 0) end
    return 1
end
redis.call('PEXPIRE', key, ARGV[2])
redis.call('HSET', key, 'state', 'done', 'at', now(), 'token', '', 'letter', '')
redis.call('SREM', KEYS[2], key)
return 1
";

/// Returns the commands of the steps that the login lacks, where the server can tell (Redis 7, Valkey). Key: any of idem.
const LACKING: &str = r"
local lacking, key = {}, KEYS[1]
if not redis.acl_check_cmd then return lacking end
local commands = {
    { 'TIME' }, { 'TYPE', key }, { 'HMGET', key, 'a' }, { 'HSET', key, 'a', '1' }, { 'HDEL', key, 'a' }, { 'DEL', key },
    { 'PEXPIRE', key, '1' }, { 'PTTL', key }, { 'PERSIST', key }, { 'SADD', key, 'a' }, { 'SREM', key, 'a' },
}
for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then lacking[#lacking + 1] = '+' .. string.lower(command[1]) end
end
return lacking
";

/// The steps, each with the hash of its text.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    pub(crate) complete: Script,
    pub(crate) bury: Script,
    pub(crate) resolve: Script,
    pub(crate) lacking: Script,
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let script = |step: &str| Script::new(&format!("{PRELUDE}{step}"));
    Scripts {
        acquire: script(ACQUIRE),
        renew: script(RENEW),
        release: script(RELEASE),
        complete: script(COMPLETE),
        bury: script(BURY),
        resolve: script(RESOLVE),
        lacking: Script::new(LACKING),
    }
});
