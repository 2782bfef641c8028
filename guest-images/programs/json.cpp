// JSON: a reader and a writer of values of standard input, by recursive descent over std::variant.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

struct Value;
using Array = std::vector<Value>;
using Object = std::map<std::string, Value>;
struct Value : std::variant<std::nullptr_t, bool, double, std::string, Array, Object> {
    using variant::variant;
};

class Reader {
    const std::string &text;
    std::size_t at = 0;

    [[noreturn]] void fail(const std::string &why) const { throw std::runtime_error(why + " at " + std::to_string(at)); }
    char peek() {
        while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) at++;
        return at < text.size() ? text[at] : '\0';
    }
    bool take(char c) { return peek() == c && ++at; }
    void expect(char c) {
        if (!take(c)) fail(std::string("no ") + c);
    }
    std::string string() {
        expect('"');
        std::string s;
        while (at < text.size() && text[at] != '"') {
            char c = text[at++];
            if (c == '\\') {
                static const std::map<char, char> escapes = {{'n', '\n'}, {'t', '\t'}, {'"', '"'}, {'\\', '\\'}, {'/', '/'}};
                c = text.at(at++);
                if (c == 'u') {
                    const auto code = std::stoul(text.substr(at, 4), nullptr, 16);
                    at += 4;
                    if (code > 0x7f) s += static_cast<char>(0xc0 | code >> 6);
                    c = static_cast<char>(code > 0x7f ? 0x80 | (code & 0x3f) : code);
                } else if (const auto found = escapes.find(c); found != escapes.end())
                    c = found->second;
                else
                    fail("no such escape");
            }
            s += c;
        }
        expect('"');
        return s;
    }

public:
    explicit Reader(const std::string &t) : text(t) {}
    bool more() { return peek() != '\0'; }
    Value value() {
        switch (peek()) {
        case '{': {
            Object object;
            for (at++; !take('}'); take(',')) {
                auto key = string();
                expect(':');
                object.insert_or_assign(std::move(key), value());
            }
            return object;
        }
        case '[': {
            Array array;
            for (at++; !take(']'); take(',')) array.push_back(value());
            return array;
        }
        case '"': return string();
        }
        for (const auto &[word, v] : {std::pair<const char *, Value>{"null", nullptr}, {"true", true}, {"false", false}})
            if (text.compare(at, std::char_traits<char>::length(word), word) == 0) return at += std::char_traits<char>::length(word), v;
        char *end;
        const double number = std::strtod(text.c_str() + at, &end);
        if (end == text.c_str() + at) fail("no value");
        at = static_cast<std::size_t>(end - text.c_str());
        return number;
    }
};

static void write(const Value &v, std::string &out) {
    struct {
        std::string &out;
        void operator()(std::nullptr_t) { out += "null"; }
        void operator()(bool b) { out += b ? "true" : "false"; }
        void operator()(double d) {
            char text[40];
            std::snprintf(text, sizeof text, "%.17g", d);
            out += text;
        }
        void operator()(const std::string &s) {
            out += '"';
            for (const char c : s) (c == '"' || c == '\\') ? (out += '\\', out += c) : c == '\n' ? out += "\\n" : out += c;
            out += '"';
        }
        void operator()(const Array &a) {
            out += '[';
            for (const auto &v : a) write(v, out), out += ',';
            a.empty() ? void(out += ']') : void(out.back() = ']');
        }
        void operator()(const Object &o) {
            out += '{';
            for (const auto &[k, v] : o) (*this)(k), out += ':', write(v, out), out += ',';
            o.empty() ? void(out += '}') : void(out.back() = '}');
        }
    } writer{out};
    std::visit(writer, static_cast<const std::variant<std::nullptr_t, bool, double, std::string, Array, Object> &>(v));
}

int main() try {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    Reader reader(text);
    while (reader.more()) {
        std::string out, again;
        write(reader.value(), out);
        write(Reader(out).value(), again);
        std::cout << out << (out == again ? "" : " CHANGED") << std::endl;
    }
    return 0;
} catch (const std::exception &error) {
    std::cerr << "json: " << error.what() << '\n';
    return 65;
}
